"""The gradient memory D of GradMA (mem_red and Server_Update): an accumulated update per buffered worker, and its QP.

D_i = scale_i * row_i. Decay multiplies the scale of a slot and leaves its row alone, so the Gram matrix of the rows
changes only where an update arrives: each entry is a product of two stored rows at all times and nothing drifts.
A round reads the memory twice: once for the products of the changed rows and the vector with all rows, once to combine.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fl_platform.algorithms.policies import Slots, get_policy
from fl_platform.errors import UserError
from fl_platform.kernels.many_anchors import solve
from fl_platform.kernels.row_products import NARROW, compile_products, row_products
from fl_platform.qp import Projection
from fl_platform.qp.dual import EXACT_GRAM
from fl_platform.qp.projection import Segments, check_segments
from fl_platform.runs import metrics
from fl_platform.seeding import generator

SMALLEST_SCALE = 1e-120
"""Decay stops here: far below anything an update could notice, and its square is still a float64. Directions count in
the QP and lengths do not, so the anchor of a worker unseen for long must not vanish by underflow."""
FLOAT32_GRAM = 3e-7
"""Relative error of Gram entries summed in float32 over chunks, in float64 over all; 2.3e-7 was the largest seen, for
positive rows."""
LIFT = 2.0**100
"""Multipliers beyond this belong to anchors near float32's smallest numbers, such as the gradient of a bias before
BatchNorm, which is round-off: the multiplier is divided and the anchor multiplied by it, or float32 would overflow."""


class GradientMemory:
    """At most ``size`` workers' updates of ``dimension`` coordinates.

    A round is ``admit(cohort)`` before training, ``update(workers, deltas)`` with those that reported (maybe none),
    then ``project(vector)``. With the coordinates split over ranks, each holds a memory of its slice and ``reduce``
    adds up the inner products of all of them.
    """

    def __init__(
        self,
        size: int,
        dimension: int,
        *,
        decay: float,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        segments: Segments | None = None,
        policy: str = "least_frequent",
        seed: int = 0,
        reduce: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.decay, self.seed, self.reduce = decay, seed, reduce
        self.policy = get_policy(policy)
        self.segments = check_segments(segments, dimension)
        self.rows = torch.zeros(size, dimension, dtype=dtype, device=device)
        is_exact = [dtype == torch.float64 or stop - start <= NARROW for start, stop in self.segments]
        self._resolution = torch.tensor([EXACT_GRAM if exact else FLOAT32_GRAM for exact in is_exact])
        compile_products(self.rows)
        self.gram = torch.zeros(len(self.segments), size, size, dtype=torch.float64)
        self.scale = torch.zeros(size, dtype=torch.float64)
        self.owner = np.full(size, -1, dtype=np.int64)
        self.count = np.zeros(size, dtype=np.int64)
        self.inserted = np.zeros(size, dtype=np.int64)
        self.last_sampled = np.zeros(size, dtype=np.int64)
        self.is_new = np.zeros(size, dtype=bool)
        self.is_stale = np.zeros(size, dtype=bool)  # the row changed since its Gram entries were computed
        self.round = self.entries = self.hits = self.evictions = 0

    @property
    def used(self) -> int:
        """Slots fill in order and are never emptied, only handed on."""
        return int((self.owner >= 0).sum())

    @property
    def workers(self) -> list[int]:
        """Buffered workers, by slot."""
        return [int(worker) for worker in self.owner[: self.used]]

    def admit(self, workers: Sequence[int]) -> None:
        """mem_red: count the cohort, in sampling order, and give a slot to each member that has none."""
        if len(set(workers)) != len(workers) or len(workers) > len(self.owner):
            raise UserError(
                f"a cohort of {len(workers)} workers must be distinct and fit algorithm.memory_size={len(self.owner)}"
            )
        self.round += 1
        self.is_new[:] = False
        slot_of = {worker: slot for slot, worker in enumerate(self.workers)}
        for worker in workers:
            slot = slot_of.get(worker)
            if slot is None:
                slot = self._take_slot(worker, workers)
            else:
                self.hits += 1
            self.count[slot] += 1
            self.last_sampled[slot] = self.round

    def _take_slot(self, worker: int, cohort: Sequence[int]) -> int:
        slot = self.used
        if slot == len(self.owner):
            candidates = np.flatnonzero(~np.isin(self.owner, cohort))
            candidates = candidates[self.inserted[candidates].argsort()]
            slot = self.policy.victim(self._slots(worker), candidates)
            self.evictions += 1
        self.entries += 1
        self.owner[slot], self.count[slot], self.inserted[slot] = worker, 0, self.entries
        self.scale[slot] = 0.0  # D is zero until the worker reports
        self.is_new[slot] = True
        return slot

    def _slots(self, worker: int) -> Slots:
        stream = generator(self.seed, "memory", self.round, worker)
        return Slots(self.count, self.inserted, self.last_sampled, self.is_new, self._cosines, stream)

    def _cosines(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        if self.is_stale.any():
            self._products(None)
        gram = self.gram.sum(0) * (self.scale > 0)
        length = gram.diagonal().sqrt()
        reciprocal = torch.where(length > 0, 1 / length, 0.0)
        return np.asarray(gram * reciprocal.unsqueeze(1) * reciprocal)

    def update(self, workers: Sequence[int], deltas: Tensor) -> None:
        """D_i <- d_i for reporters that just entered, decay D_i + d_i for the others, decay D_i for all the rest."""
        slot_of = {worker: slot for slot, worker in enumerate(self.workers)}
        self.scale = torch.where(self.scale > 0, (self.scale * self.decay).clamp_min(SMALLEST_SCALE), 0.0)
        if self.decay == 0:
            self.scale.zero_()
        silent = set(np.flatnonzero(self.is_new).tolist()) - {slot_of[worker] for worker in workers}
        for worker, delta in zip(workers, deltas.to(self.rows), strict=True):
            slot = slot_of[worker]
            remembered = float(self.scale[slot])
            if remembered:
                torch.add(delta, self.rows[slot], alpha=remembered, out=self.rows[slot])
            else:
                self.rows[slot] = delta
            self.scale[slot] = 1.0
            self.is_stale[slot] = True
        for slot in silent:
            self.rows[slot] = 0.0
            self.is_stale[slot] = True

    def project(
        self,
        vector: Tensor,
        *,
        margin: float = 0.0,
        drop_threshold: float = 0.0,
        solver: str = "exact",
        on_failure: str = "raise",
    ) -> Projection:
        """The closest vector that agrees with every remembered update; (d) in, (d) out on the same device."""
        used, here = self.used, vector.to(self.rows)
        products = self._products(here)
        scale = self.scale[:used]
        solution = solve(
            self.gram[:, :used, :used] * scale.unsqueeze(1) * scale,
            products[:, :used] * scale,
            products[:, used],
            margin=margin,
            drop_threshold=drop_threshold,
            solver=solver,
            resolution=self._resolution,
            on_failure=on_failure,
        )
        projected, is_active = vector.clone(), (solution.multipliers != 0).any(-1).tolist()
        if not any(is_active):
            return Projection(vectors=projected, **vars(solution))
        weights = solution.multipliers * scale
        is_short = weights.abs() > LIFT
        moderate = torch.where(is_short, 0.0, weights).to(self.rows)  # one copy to the device for all segments
        for index, (start, stop) in enumerate(self.segments):
            if is_active[index]:
                correction = self._combination(moderate[index], start, stop)
                for slot in torch.nonzero(is_short[index]).flatten().tolist():  # nearly zero rows are lifted first
                    correction += self.rows[slot, start:stop] * LIFT * float(weights[index, slot] / LIFT)
                projected[start:stop] += correction.to(vector)
        return Projection(vectors=projected, **vars(solution))

    def _combination(self, weights: Tensor, start: int, stop: int) -> Tensor:
        """The rows times their weights, between two coordinates; a host reads only the rows that count."""
        if self.rows.device.type != "cpu":
            return weights @ self.rows[: len(weights), start:stop]
        total = self.rows.new_zeros(stop - start)
        for slot in torch.nonzero(weights).flatten().tolist():
            total.add_(self.rows[slot, start:stop], alpha=float(weights[slot]))
        return total

    def _products(self, vector: Tensor | None) -> Tensor:
        """(L, used + 1) inner products of the vector with all rows and itself; renews stale Gram entries on the way."""
        stale = torch.from_numpy(np.flatnonzero(self.is_stale))
        probe = self.rows.new_zeros(self.rows.shape[1]) if vector is None else vector
        contributions = self._contributions(stale, probe)
        if self.reduce is not None:
            contributions = self.reduce(contributions)
        contributions, used = contributions.cpu(), self.used
        fresh = contributions[:, :-1, :used]
        self.gram[:, stale, :used] = fresh
        self.gram[:, :used, stale] = fresh.mT
        self.is_stale[:] = False
        return contributions[:, -1]

    def _contributions(self, slots: Tensor, vector: Tensor) -> Tensor:
        """(L, len(slots) + 1, used + 1) products of the given rows and the vector with all rows; last, its square."""
        used, count = self.used, len(slots) + 1
        slots = slots.to(self.rows.device)
        total = torch.zeros(len(self.segments), count, used + 1, dtype=torch.float64, device=self.rows.device)
        for index, (start, stop) in enumerate(self.segments):
            total[index, :, :used] = row_products(self.rows[:used], slots, vector, start, stop)
            total[index, -1, used] = torch.linalg.vector_norm(vector[start:stop], dtype=torch.float64).square()
        return total

    def statistics(self) -> dict[str, float]:
        """Figures logged once per round; an age is the number of rounds since the owner was last sampled."""
        ages = self.round - self.last_sampled[: self.used]
        return {
            metrics.MEMORY_SLOTS: float(self.used),
            metrics.MEMORY_EVICTIONS: float(self.evictions),
            metrics.MEMORY_HITS: float(self.hits),
            metrics.MEMORY_MEAN_AGE: float(ages.mean()) if len(ages) else 0.0,
            metrics.MEMORY_MAX_AGE: float(ages.max()) if len(ages) else 0.0,
        }

    _TENSORS = ("rows", "gram", "scale")
    _ARRAYS = ("owner", "count", "inserted", "last_sampled", "is_new", "is_stale")
    _NUMBERS = ("round", "entries", "hits", "evictions")

    def state_dict(self) -> dict[str, Any]:
        """Tensors (not copied) and numbers; loading them continues with equal bits."""
        return (
            {name: getattr(self, name) for name in self._TENSORS}
            | {name: torch.from_numpy(getattr(self, name)) for name in self._ARRAYS}
            | {name: getattr(self, name) for name in self._NUMBERS}
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["rows"].shape != self.rows.shape or state["gram"].shape != self.gram.shape:
            raise UserError(
                f"the saved gradient memory has {tuple(state['rows'].shape)} entries in {len(state['gram'])} segments, "
                f"this run {tuple(self.rows.shape)} in {len(self.gram)}; resume with the same model, "
                "algorithm.memory_size and algorithm.qp.scope"
            )
        for name in self._TENSORS:
            getattr(self, name).copy_(state[name])
        for name in self._ARRAYS:
            getattr(self, name)[:] = state[name].cpu().numpy()
        for name in self._NUMBERS:
            setattr(self, name, int(state[name]))
