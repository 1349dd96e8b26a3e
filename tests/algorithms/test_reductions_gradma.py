"""The GradMA family: what it reduces to, and what its projections promise (R11-R13, R16-R18)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from fl_platform.algorithms.base import Algorithm
from fl_platform.algorithms.gradma import GradMA, GradMAS, GradMAW, ProjectedWorker, ServerQPOptions
from fl_platform.algorithms.momentum import SlowMomentum
from fl_platform.data.partition import Partition
from fl_platform.federation.module import FederatedModule
from fl_platform.runs import metrics
from tests.algorithms.trajectories import PLAIN, EveryRound, follow, run, run_quadratics, watch, watching
from tests.federations import SIZES, Finished, images, make_config, make_module

LIVELY = ("local_lr=0.3", "cohort_size=2", "num_rounds=7")  # conflicts occur on both sides
FROM_GLOBAL = "algorithm.previous_model=global"


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-12) -> bool:
    return torch.allclose(a, b, rtol=0, atol=tolerance)


def segments_of(done: Finished, scope: str) -> list[tuple[int, int]]:
    layout = done.module.network.parameters
    return layout.segments if scope == "tensor" else [(0, layout.dim)]


def remembered(done: Finished) -> torch.Tensor:
    memory = done.algorithm.memory
    return (memory.scale[:, None] * memory.rows)[: memory.used]


def with_algorithm(algorithm: Algorithm, name: str, *args: str) -> Any:
    return follow(make_config(f"algorithm.name={name}", PLAIN, *args, "engine=stacked"), algorithm=algorithm)


def test_gradma_s_without_memory_is_fedavgm():
    """R11."""
    without = run("gradma_s", *LIVELY, "algorithm.memory_size=0")
    assert torch.equal(without.rounds, run("fedavgm", *LIVELY).rounds)
    assert not close(run("gradma_s", *LIVELY).params, without.params, 1e-6)
    assert without.logged(metrics.MEMORY_SLOTS) == without.logged(metrics.QP_SERVER_RATIO) == []


def test_gradma_without_memory_is_gradma_w_under_slow_momentum():
    """R11."""

    @dataclass(eq=False)
    class Composed(SlowMomentum, ProjectedWorker):
        """GradMA-W's workers, FedAvgM's server."""

        name = "composed"

    composed = with_algorithm(Composed(), "gradma", *LIVELY, "algorithm.memory_size=0")
    assert torch.equal(run("gradma", *LIVELY, "algorithm.memory_size=0", "engine=stacked").rounds, composed.rounds)
    assert not close(composed.params, run("fedavgm", *LIVELY).params, 1e-6)


def test_gradma_without_its_worker_projection_is_gradma_s():
    """R11."""

    class Unprojected(GradMA):
        def local_direction(self, step: Any) -> torch.Tensor:
            return step.gradient

    off = with_algorithm(Unprojected(memory_size=5), "gradma", *LIVELY)
    assert torch.equal(off.rounds, run("gradma_s", *LIVELY, "engine=stacked").rounds)
    assert not close(off.params, run("gradma", *LIVELY).params, 1e-6)


def test_gradma_w_with_one_step_from_the_global_model_is_fedavg():
    """R12."""
    one = ("local_steps=1", "local_lr=0.5")
    assert torch.equal(run("gradma_w", *one, FROM_GLOBAL).rounds, run("fedavg", *one).rounds)
    several = run("gradma_w", "local_lr=0.5", FROM_GLOBAL), run("fedavg", "local_lr=0.5")
    assert not close(several[0].rounds[1], several[1].rounds[1], 1e-6)


def test_gradma_w_without_conflicts_is_fedavg():
    """R12: at a small rate the gradient at the last local model agrees with the present one, all run long."""
    args = ("local_steps=1", "local_lr=0.001")
    done = run("gradma_w", *args)
    assert done.logged(metrics.QP_WORKER_ACTIVE) == [0.0] * 4
    assert torch.equal(done.rounds, run("fedavg", *args).rounds)


@pytest.mark.parametrize("scope", ["global", "tensor"])
def test_gradma_w_changes_a_gradient_only_where_an_anchor_disagrees(scope):
    """R12, step by step and per problem of the scope."""
    seen: list[tuple[torch.Tensor, list[torch.Tensor]]] = []

    class Anchored(GradMAW):
        def anchors(self, step: Any) -> list[torch.Tensor]:
            anchors = super().anchors(step)
            seen.append((step.gradient.clone(), [anchor.clone() for anchor in anchors]))
            return anchors

    done = with_algorithm(
        watching(Anchored, qp={"scope": scope}),
        "gradma_w",
        f"algorithm.qp.scope={scope}",
        "local_lr=0.3",
        "num_rounds=5",
    )
    kept = changed = 0
    for (gradient, anchors), step in zip(seen, done.algorithm.steps, strict=True):
        for start, stop in segments_of(done, scope):
            before, after = gradient[:, start:stop], step.direction[:, start:stop]
            agrees = torch.stack([(before * anchor[:, start:stop]).sum(1) >= 0 for anchor in anchors]).all(0)
            assert torch.equal(before[agrees], after[agrees])
            kept += int(agrees.sum())
            opposed = torch.stack([(before * anchor[:, start:stop]).sum(1) < -1e-9 for anchor in anchors]).any(0)
            assert all((before[opposed] - after[opposed]).norm(dim=1) > 0)
            changed += int(opposed.sum())
    assert kept > 5
    assert changed > 5


@pytest.mark.parametrize("scope", ["global", "tensor"])
def test_gradma_w_never_steps_away_from_the_global_model(scope):
    """R17: <g~, x_tau - x_t> >= 0, hence |x_I - x_t|^2 <= local_lr^2 sum |g~|^2, for each problem of the scope."""
    done = watch("gradma_w", f"algorithm.qp.scope={scope}", "local_lr=0.3", "local_steps=4")
    final = [seen.updates.delta for seen in done.algorithm.server_steps]
    steps = list(done.algorithm.steps)
    for start, stop in segments_of(done, scope):
        part = slice(start, stop)
        for step in steps:
            inner = (step.direction[:, part] * step.drift[:, part]).sum(1)
            assert bool((inner >= -1e-12).all())
            assert bool((step.direction[:, part].norm(dim=1) <= step.gradient[:, part].norm(dim=1) + 1e-12).all())
        for number, delta in enumerate(final):
            squares = sum(step.direction[:, part].square().sum(1) for step in steps[4 * number : 4 * number + 4])
            assert bool((delta[:, part].square().sum(1) <= 0.3**2 * squares + 1e-12).all())
    fedavg = watch("fedavg", "local_lr=0.3", "local_steps=4")
    drifts = [(step.gradient * step.drift).sum(1).min() for step in fedavg.algorithm.steps]
    assert min(drifts) < -1e-3  # without the projection it does


def test_gradma_s_keeps_momentum_that_agrees_with_the_memory():
    """R13: where every product is >= 0 the projection is the identity; elsewhere it ends in agreement."""
    products, before = [], []

    class Looking(GradMAS):
        def server_direction(self, updates: Any) -> torch.Tensor:
            momentum = self.momentum_decay * self.momentum + updates.mean_delta
            direction = super().server_direction(updates)
            anchors = self.memory.scale[:, None] * self.memory.rows
            before.append((momentum, direction.clone()))
            products.append((anchors @ momentum, anchors @ direction))
            return direction

    with_algorithm(Looking(memory_size=5), "gradma_s", *LIVELY)
    corrected = 0
    for (momentum, direction), (first, last) in zip(before, products, strict=True):
        if bool((first >= 0).all()):
            assert close(direction, momentum, 1e-15)
        else:
            corrected += 1
            assert not close(direction, momentum, 1e-9)
        assert bool((last >= -1e-12).all())
        assert direction.norm() <= momentum.norm() + 1e-12
    assert 0 < corrected < 7


def test_gradma_s_of_identical_workers_and_equal_decays_is_fedavgm():
    """R13: D_i = m for all i, so nothing is ever corrected."""

    def identical(name: str) -> Any:
        args = [f"algorithm.name={name}", PLAIN, "cohort_size=4", "batch_size=16", "local_lr=0.5", "num_rounds=6"]
        args += ["algorithm.memory_decay=0.5", "algorithm.memory_size=4"] * (name == "gradma_s")
        config = make_config(*args, workers=4)
        module = make_module(config, sizes=(12,))
        samples = images(12, module.dataset.shape, module.dataset.num_classes, "train")
        everybody = Partition(np.tile(np.arange(12), 4), np.arange(0, 60, 12))
        return follow(config, FederatedModule(config, module.dataset, module.network, samples, samples, everybody))

    done = identical("gradma_s")
    assert close(done.rounds, identical("fedavgm").rounds, 1e-11)
    assert done.logged(metrics.QP_SERVER_ACTIVE) == [0.0] * 6
    assert all(close(row, done.algorithm.momentum, 1e-11) for row in remembered(done))


def test_scopes_agree_on_a_model_of_one_tensor():
    """R16, on quadratics, whose model is a single tensor."""
    targets = np.random.default_rng(5).integers(0, 256, (5, 4)).astype(np.uint8)
    args = ("cohort_size=3", "local_lr=0.4", "num_rounds=8", "algorithm.memory_size=4", "algorithm.momentum_decay=0.9")
    whole, parts = (
        run_quadratics("gradma", *args, f"algorithm.qp.scope={s}", targets=targets)[0] for s in ("global", "tensor")
    )
    assert max(whole.logged(metrics.QP_SERVER_ACTIVE)) > 0
    assert max(whole.logged(metrics.QP_WORKER_ACTIVE)) > 0
    assert torch.equal(whole.rounds, parts.rounds)


def test_projections_per_tensor_meet_the_global_constraints():
    """R16: agreement in every tensor is agreement of the whole; the results differ, since it asks for more."""
    agreed: list[torch.Tensor] = []

    class Looking(GradMAS):
        def server_direction(self, updates: Any) -> torch.Tensor:
            direction = super().server_direction(updates)
            agreed.append((self.memory.scale[:, None] * self.memory.rows) @ direction)
            return direction

    with_algorithm(Looking(memory_size=5, qp=ServerQPOptions(scope="tensor")), "gradma_s", *LIVELY)
    assert len(agreed) == 7
    assert all(bool((products >= -1e-12).all()) for products in agreed)
    whole, parts = (run("gradma_s", *LIVELY, f"algorithm.qp.scope={scope}") for scope in ("global", "tensor"))
    assert not close(whole.params, parts.params, 1e-6)


class Buffered(EveryRound):
    """Who is remembered after each round, and what."""

    def __init__(self) -> None:
        super().__init__()
        self.slots: list[dict[int, torch.Tensor]] = []
        self.evictions: list[int] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        memory = pl_module.algorithm.memory
        rows = memory.scale[:, None] * memory.rows
        self.slots.append({worker: rows[slot].clone() for slot, worker in enumerate(memory.workers)})
        self.evictions.append(memory.evictions)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_memory_holds_the_cohort_and_evicts_only_when_full(size):
    """R18, through whole runs: |buf| <= m, S_t in buf, m = S is exactly S_t, m = N never evicts."""
    seen = Buffered()
    args = ("cohort_size=2", "num_rounds=12", f"algorithm.memory_size={size}")
    done = watch("gradma_s", *args, callbacks=(seen,))
    reentered = 0
    left: set[int] = set()
    for number, (slots, cohort) in enumerate(zip(seen.slots, done.logged(metrics.COHORT), strict=True)):
        assert len(slots) <= size
        assert set(cohort) <= set(slots)
        if size == 2:
            assert set(slots) == set(cohort)
        earlier = set(seen.slots[number - 1]) if number else set()
        updates = done.algorithm.server_steps[number].updates
        for worker, delta in zip(cohort, updates.delta, strict=True):
            if worker not in earlier:
                assert torch.equal(slots[worker], delta)  # D = d, whatever it held before it was evicted
                reentered += worker in left
        left |= earlier - set(slots)
    assert seen.evictions[-1] == done.logged(metrics.MEMORY_EVICTIONS)[-1]
    assert (seen.evictions[-1] == 0) == (size == len(SIZES))
    assert (reentered > 0) == (size < len(SIZES))
