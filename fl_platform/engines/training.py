"""Local training of a stack of workers: I steps of SGD along the algorithm's direction.

The same steps serve both engines; what differs is how the gradients of a stack are computed (``Objective``).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, LocalRun, LocalStep, check_returned, has_default
from fl_platform.data.images import Images
from fl_platform.data.streams import BatchPlan, BatchStreams
from fl_platform.engines.ranks import Ranks
from fl_platform.engines.transfer import to_device
from fl_platform.kernels.perceptron import Perceptron
from fl_platform.kernels.recycled import Recycler
from fl_platform.models.flat import Stack, Vector
from fl_platform.models.network import Network
from fl_platform.seeding import stream_keys


@dataclass(frozen=True)
class LocalWork:
    """What a stack of workers starts a round from."""

    round: int
    workers: np.ndarray
    plan: BatchPlan
    global_params: Vector
    global_buffers: Vector
    buffers: Stack | Vector  # what each worker's running statistics start from
    relative_sizes: Vector  # n_i / mean n
    state: Mapping[str, Stack]

    def part(self, rows: slice) -> "LocalWork":
        """The work of some of the workers."""
        return replace(
            self,
            workers=self.workers[rows],
            plan=BatchPlan(self.plan.indices[:, rows], self.plan.counts[:, rows]),
            buffers=self.buffers[rows] if self.buffers.dim() == 2 else self.buffers,
            relative_sizes=self.relative_sizes[rows],
            state={name: stack[rows] for name, stack in self.state.items()},
        )


class LoadedPlan:
    """A batch plan on a device, with the keys of its dropout and augmentation and what padding leaves of a mean."""

    def __init__(self, plan: BatchPlan, indices: Tensor, counts: Tensor, keys: Callable[[], Tensor]) -> None:
        self.indices, self.counts = indices, counts  # (steps, S, B) and (steps, S)
        self.widths: list[int] = plan.counts.max(axis=1).tolist()  # each step is padded to its longest batch
        self.is_padded: list[bool] = (plan.counts.min(axis=1) < plan.counts.max(axis=1)).tolist()
        self._make_keys = keys

    @staticmethod
    def on_host(plan: BatchPlan, draw_keys: Callable[[], NDArray[np.int64]]) -> "LoadedPlan":
        """The plan on the CPU, sharing its memory."""
        indices, counts = torch.from_numpy(plan.indices), torch.from_numpy(plan.counts)
        return LoadedPlan(plan, indices, counts, lambda: torch.from_numpy(draw_keys()))

    @cached_property
    def keys(self) -> Tensor:
        """(steps, S); a perceptron without dropout never asks for them."""
        return self._make_keys()

    @cached_property
    def mask(self) -> Tensor:
        """(steps, S, B), False for padding."""
        return torch.arange(self.indices.shape[2], device=self.counts.device) < self.counts.unsqueeze(-1)

    def row_weights(self, dtype: torch.dtype) -> Tensor:
        """(steps, S, B): the weights of rows in a mean over a batch's real ones; zero for padding."""
        if self._row_weights is None:
            self._row_weights = self.mask.to(dtype) / self.counts.clamp(min=1).unsqueeze(-1)
        return self._row_weights

    _row_weights: Tensor | None = None


class Records:
    """Figures recorded by worker hooks, reduced over steps and workers without touching the host."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, list[Tensor]]] = {}

    def record(self, name: str, values: Tensor, how: str = "mean") -> None:
        self._values.setdefault(name, (how, []))[1].append(values.detach().reshape(-1).double())

    def extend(self, other: "Records") -> None:
        for name, (how, values) in other._values.items():
            self._values.setdefault(name, (how, []))[1].extend(values)

    def of_all(self, ranks: Ranks) -> "Records":
        """The figures of all ranks, in rank order. Names are exchanged as objects and values as tensors."""
        own = {name: (how, torch.cat(values).to(ranks.device)) for name, (how, values) in self._values.items()}
        found = ranks.collect({name: (how, len(values)) for name, (how, values) in own.items()})
        together = Records()
        for name, how in {name: how for names in found for name, (how, _) in names.items()}.items():
            _, values = own.get(name, (how, torch.empty(0, dtype=torch.float64, device=ranks.device)))
            lengths = [names.get(name, (how, 0))[1] for names in found]
            together._values[name] = (how, [ranks.concatenated(values, lengths)])
        return together

    def reduced(self) -> dict[str, Tensor]:
        """One number per name, still on the device."""
        return {name: getattr(torch, how)(torch.cat(values)) for name, (how, values) in self._values.items()}


@dataclass
class LocalResult:
    """What the workers of a round end with, a row each."""

    workers: np.ndarray
    delta: Stack  # x_t - x_i
    buffers: Stack
    loss: Tensor  # (S,), mean over the local steps
    outcome: dict[str, Stack]  # for every name the algorithm keeps or sends
    records: Records = field(default_factory=Records)
    gradient_passes: int = 0  # of each worker

    @staticmethod
    def empty(work: LocalWork, widths: Mapping[str, int], memory: Recycler) -> "LocalResult":
        """Stacks to be filled in; ``widths`` are the lengths of what a worker keeps and sends, by name."""
        like, count = work.global_params, len(work.workers)
        return LocalResult(
            workers=work.workers,
            delta=memory.empty("delta", (count, like.numel()), like),
            buffers=like.new_empty(count, work.global_buffers.numel()),
            loss=like.new_empty(count),
            outcome={name: memory.empty(f"outcome.{name}", (count, width), like) for name, width in widths.items()},
        )

    @property
    def stacks(self) -> list[Tensor]:
        return [self.delta, self.buffers, self.loss, *self.outcome.values()]

    def only(self, rows: np.ndarray) -> "LocalResult":
        """The result of some of the workers."""
        index = torch.from_numpy(rows).to(self.delta.device)
        return replace(
            self,
            workers=self.workers[rows],
            delta=self.delta[index],
            buffers=self.buffers[index],
            loss=self.loss[index],
            outcome={name: stack[index] for name, stack in self.outcome.items()},
        )


class Objective(ABC):
    """The algorithm's local loss on the batches of a stack of workers, as a function of the parameters."""

    passes = 0
    """Gradients taken so far, counted once for the whole stack."""

    @abstractmethod
    def __init__(self, training: "LocalTraining", work: LocalWork, plan: LoadedPlan) -> None:
        """For the batches of ``plan``."""

    @abstractmethod
    def load(self, step: int) -> None:
        """Make the batch of a step the current one."""

    @abstractmethod
    def gradient(
        self, params: Stack | Vector, buffers: Stack | Vector, updates_statistics: bool
    ) -> tuple[Stack, Tensor]:
        """(S, d) gradients on the current batch, at each worker's own parameters or at one point for all; (S,) losses.

        Running statistics in ``buffers`` are updated in place, or left alone.
        """

    @abstractmethod
    def gradient_at(self, params: Stack | Vector) -> Stack:
        """Gradients elsewhere; running statistics are left alone."""

    def descend(self, params: Stack, buffers: Stack, rate: float) -> Tensor | None:
        """All steps along the plain gradient in one call, in place: (steps, S) losses. None without a kernel for it."""
        return None


class LocalTraining:
    """The local steps of stacks of workers, given data, streams and rates."""

    def __init__(
        self,
        objective: type[Objective],
        network: Network,
        algorithm: Algorithm,
        images: Images,
        streams: BatchStreams,
        *,
        local_lr: float,
        local_steps: int,
        seed: int,
    ) -> None:
        self._objective, self.network, self.algorithm = objective, network, algorithm
        self.images, self.streams = images, streams
        self.local_lr, self.local_steps, self.seed = local_lr, local_steps, seed
        self._perceptron = Perceptron.of(network) if images.device.type == "cpu" else None  # gains measured there
        self._memory = Recycler()

    @property
    def perceptron(self) -> Perceptron | None:
        """The kernel of the local loss, where the network and the algorithm's loss have one."""
        return self._perceptron if has_default(self.algorithm, "local_loss") else None

    def train(self, work: LocalWork, result: LocalResult, rows: slice) -> Records:
        """Train the workers and write what they end with into ``rows`` of the result; returns recorded figures."""
        records = Records()
        objective = self._objective(self, work, *self._load(work, {"step": work.plan}))
        params = self.empty("params", work).copy_(work.global_params)
        buffers = work.buffers.expand(len(work.workers), -1).clone()
        losses = None
        if has_default(self.algorithm, "local_loss", "local_direction"):
            losses = objective.descend(params, buffers, self.local_lr)
        if losses is None:
            params, losses = self._steps(objective, work, params, buffers, records)
        torch.sub(work.global_params, params, out=result.delta[rows])
        result.buffers[rows] = buffers
        result.loss[rows] = losses.mean(0)
        result.gradient_passes = objective.passes  # the same for every worker
        self._finish(work, params, result, rows)
        return records

    def _steps(
        self, objective: Objective, work: LocalWork, params: Stack, buffers: Stack, records: Records
    ) -> tuple[Stack, Tensor]:
        """The parameters after all steps along the algorithm's direction, and (steps, S) losses.

        x_{tau+1} = x_tau - local_lr * direction(x_tau); every x_tau is a tensor of its own.
        """
        previous, losses = params, []
        for index in range(self.local_steps):
            objective.load(index)
            gradient, loss = objective.gradient(params, buffers, updates_statistics=True)
            step = LocalStep(
                index=index,
                params=params,
                previous_params=previous,
                global_params=work.global_params,
                gradient=gradient,
                relative_sizes=work.relative_sizes,
                state=work.state,
                gradient_at=objective.gradient_at,
                record=records.record,
            )
            direction = self.algorithm.local_direction(step)
            check_returned(self.algorithm, "local_direction", direction, gradient)
            following = torch.sub(params, direction, alpha=self.local_lr, out=self.empty("params", work))
            previous, params = params, following
            losses.append(loss)
        return params, torch.stack(losses)

    def _finish(self, work: LocalWork, params: Stack, result: LocalResult, rows: slice) -> None:
        run = LocalRun(
            params=params,
            buffers=result.buffers[rows],
            delta=result.delta[rows],
            global_params=work.global_params,
            state=work.state,
            local_lr=self.local_lr,
            local_steps=self.local_steps,
            full_gradient=lambda at: self._full_gradient(work, at),
            round_gradient=lambda at: self._round_gradient(work, at),
        )
        for name, stack in self.algorithm.finish_local(run).items():
            check_returned(self.algorithm, "finish_local", stack, result.outcome[name][rows])
            result.outcome[name][rows] = stack

    def empty(self, name: str, work: LocalWork) -> Stack:
        """An uninitialised vector of parameters per worker, in memory that nobody holds."""
        return self._memory.empty(name, (len(work.workers), work.global_params.numel()), work.global_params)

    def _load(self, work: LocalWork, plans: Mapping[str, BatchPlan]) -> list[LoadedPlan]:
        """Plans, by the name of the random stream of their dropout and augmentation, to the device in one copy."""
        device = self.images.device
        draws = [
            partial(stream_keys, len(plan.counts), work.workers, self.seed, purpose, work.round)
            for purpose, plan in plans.items()
        ]
        if device.type == "cpu":  # nothing to copy, and keys are made when asked for
            return [LoadedPlan.on_host(plan, draw) for plan, draw in zip(plans.values(), draws, strict=True)]
        arrays = [(plan.indices, plan.counts, draw()) for plan, draw in zip(plans.values(), draws, strict=True)]
        tensors = to_device([array for group in arrays for array in group], device)
        return [
            LoadedPlan(plan, tensors[first], tensors[first + 1], partial(tensors.__getitem__, first + 2))
            for first, plan in zip(range(0, len(tensors), 3), plans.values(), strict=True)
        ]

    def _round_gradient(self, work: LocalWork, at: Vector) -> Stack:
        objective = self._objective(self, work, *self._load(work, {"round": work.plan}))
        gradients = (self._gradient_of(objective, step, at) for step in range(self.local_steps))
        return add_up(gradients) / self.local_steps

    def _full_gradient(self, work: LocalWork, at: Vector) -> Stack:
        """Batch gradients over a worker's whole data, weighted by batch size; training mode, statistics untouched."""
        plans = {f"full{number}": plan for number, plan in enumerate(self.streams.full_pass(work.workers))}
        loaded = self._load(work, plans)
        counts = torch.cat([plan.counts for plan in loaded]).to(at.dtype)[:, :, None]
        gradients = (
            counts[number] * self._gradient_of(self._objective(self, work, loaded[number]), 0, at)
            for number, plan in enumerate(plans.values())
            if plan.counts.any()
        )
        return add_up(gradients) / counts.sum(0)

    @staticmethod
    def _gradient_of(objective: Objective, step: int, at: Vector) -> Stack:
        objective.load(step)
        return objective.gradient_at(at)


def add_up(stacks: Iterable[Stack]) -> Stack:
    """The sum of fresh stacks, written into the first."""
    return reduce(torch.Tensor.add_, stacks)
