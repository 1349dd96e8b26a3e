"""GradMA's costs, readings, solver options, diagnostics and failures."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fl_platform.algorithms.gradma import GradMA, GradMAS, GradMAW, JointQPOptions, ServerQPOptions, WorkerQPOptions
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.data.partition import Partition
from fl_platform.data.samples import Samples
from fl_platform.engines.cohort import train_cohort
from fl_platform.federation import round as round_module
from fl_platform.federation.module import FederatedModule
from fl_platform.models.network import Network
from fl_platform.runs import metrics
from tests.algorithms.trajectories import PLAIN, follow, run, watch
from tests.federations import make_config, synthetic_dataset

LIVELY = ("local_lr=0.3", "cohort_size=2", "num_rounds=7")  # conflicts occur on both sides


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-12) -> bool:
    return torch.allclose(a, b, rtol=0, atol=tolerance)


@pytest.fixture
def passes(monkeypatch):
    """LocalResult.gradient_passes of every round, equal for all workers."""
    counted: list[int] = []

    def counting(*arguments: Any) -> Any:
        result = train_cohort(*arguments)
        [number] = set(result.gradient_passes.tolist())
        counted.append(number)
        return result

    monkeypatch.setattr(round_module, "train_cohort", counting)
    return counted


@pytest.mark.parametrize("name", ["gradma", "gradma_w"])
@pytest.mark.parametrize(("previous", "number"), [("global", 12), ("last_local", 13)])
def test_five_steps_take_twelve_or_thirteen_gradients(name, previous, number, passes):
    """1 + 2 + 3 + 3 + 3: at step 0 the model is x_t, at step 1 the previous one is; the last local model costs one."""
    for engine in ("stacked", "loop"):
        run(name, f"algorithm.previous_model={previous}", "local_steps=5", f"engine={engine}", "num_rounds=2")
    assert passes == [number] * 4


@pytest.mark.parametrize("name", ["fedavg", "gradma_s", "scaffold", "fedprox", "feddyn", "moon", "fedmlb", "mifa"])
def test_other_methods_take_one_gradient_a_step(name, passes):
    run(name, "local_steps=5", "num_rounds=1", "engine=stacked")
    assert passes == [5]


def test_only_the_last_local_model_is_kept_and_only_where_it_is_read():
    done = run("gradma_w", "num_rounds=1", "cohort_size=6")
    last = done.table("last_local")
    assert close(last.mean(0), done.params)
    assert GradMAW(previous_model="global").keeps == {}
    assert GradMAS().keeps == {}


def test_presets_are_the_papers_and_the_released_readings():
    def readings(*args):
        config = resolve(compose([*args])).config
        return config.aggregation, config.algorithm["qp"]["scope"], config.algorithm["previous_model"]

    assert readings("preset=paper", "algorithm.name=gradma") == ("uniform", "global", "last_local")
    released = ("preset=released", "algorithm.name=gradma")
    assert readings(*released) == ("samples", "tensor", "global")
    assert readings(*released, "algorithm.qp.scope=global") == ("samples", "global", "global")
    # the released GradMA-W reads the last local model as the paper does
    assert readings("preset=released", "algorithm.name=gradma_w") == ("samples", "tensor", "last_local")


def test_presets_train_as_their_keys_spelled_out():
    spelled = ("aggregation=samples", "algorithm.qp.scope=tensor", "algorithm.previous_model=global")
    released, paper = run("gradma", *LIVELY, "preset=released"), run("gradma", *LIVELY, "preset=paper")
    assert torch.equal(released.rounds, run("gradma", *LIVELY, *spelled).rounds)
    assert torch.equal(paper.rounds, run("gradma", *LIVELY).rounds)
    assert not close(released.rounds[1], paper.rounds[1], 1e-6)


class SkewedLogits(nn.Sequential):
    """One linear layer: its bias is the output bias."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(16, 5))


@pytest.mark.parametrize("cohort", [5, 3])
def test_projection_per_tensor_freezes_the_output_bias_under_label_skew(cohort):
    """One class per worker, all classes remembered: the output bias does not move, exactly, in scope=tensor.

    The bias gradient of a worker of class c is p_c - e_c with p_c its mean softmax output, so the updates of all
    classes are the rows of eta (P - 1) with P a positive stochastic matrix. Its stationary distribution combines these
    rows to zero with positive weights: they span every direction in which biases move, and nothing agrees with all of
    them but zero.
    """
    dataset = synthetic_dataset((1, 4, 4), 5)
    pixels = np.random.default_rng(1).integers(0, 256, (30, 1, 4, 4)).astype(np.uint8)
    train = Samples.from_arrays(pixels, np.arange(30) // 6)

    def bias(scope: str) -> tuple[torch.Tensor, Any]:
        args = (f"cohort_size={cohort}", f"algorithm.qp.scope={scope}", "algorithm.memory_size=5", "num_rounds=8")
        config = make_config("algorithm.name=gradma_s", *args, workers=5)
        by_class = Partition(np.arange(30), np.arange(0, 36, 6))
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = Network(SkewedLogits())
        module = FederatedModule(config, dataset, network, train, train, by_class)
        done = follow(config, module)
        return done.rounds[:, -5:], done

    frozen, done = bias("tensor")
    first = done.logged(metrics.MEMORY_SLOTS).index(5)  # the first round that ends with every class remembered
    assert first < 5
    assert close(frozen[first:], frozen[first].expand_as(frozen[first:]), 1e-14)
    assert min(done.logged(metrics.QP_FROZEN_TENSORS)[first:]) >= 1
    moving, _ = bias("global")
    assert (moving[-1] - moving[first]).norm() > 1e-3


@pytest.mark.parametrize("name", ["gradma", "gradma_s"])
@pytest.mark.parametrize("where", ["algorithm.memory_device=cpu", "state.device=cpu"])
def test_memory_and_state_on_the_host_change_nothing(name, where):
    moved = run(name, *LIVELY, where)
    assert torch.equal(moved.rounds, run(name, *LIVELY).rounds)
    assert moved.algorithm.memory.rows.device == torch.device("cpu")


@pytest.mark.parametrize("scope", ["global", "tensor"])
def test_another_solver_finds_the_same_model(scope):
    """Clarabel is an interior-point method, exact to its own tolerance."""
    args = ("local_lr=0.3", "cohort_size=2", "num_rounds=5", f"algorithm.qp.scope={scope}")
    exact, other = (run("gradma", *args, f"algorithm.qp.solver={solver}") for solver in ("exact", "clarabel"))
    assert max(exact.logged(metrics.QP_SERVER_ACTIVE)) > 0
    assert close(exact.rounds, other.rounds, 1e-5)
    assert not torch.equal(exact.rounds, other.rounds)


def test_worker_margin_keeps_an_angle_to_every_anchor():
    """<g~, a> >= rho |g| |a|, wherever the anchors leave such a vector: at step 1 they are g(x_t) and the drift."""
    margin = 0.05
    seen = []

    class Anchored(GradMAW):
        def local_direction(self, step: Any) -> torch.Tensor:
            anchors = [anchor.clone() for anchor in self.anchors(step)]
            direction = super().local_direction(step)
            seen.append((step.gradient.clone(), anchors, direction.clone()))
            return direction

    args = ("algorithm.name=gradma_w", PLAIN, "local_steps=2", f"algorithm.qp.worker_margin={margin}", "local_lr=0.3")
    sizes = (24, 30, 40, 28, 26, 33)  # more than a batch: else g(x_t) and the drift are opposite and leave no vector
    done = follow(make_config(*args), algorithm=Anchored(qp=WorkerQPOptions(worker_margin=margin)), sizes=sizes)
    bound = 0
    for gradient, anchors, direction in seen:
        for anchor in anchors:
            cosine = (direction * anchor).sum(1) / gradient.norm(dim=1) / anchor.norm(dim=1).clamp_min(1e-300)
            assert bool((cosine >= margin - 1e-9).all())
            bound += int((cosine < margin + 1e-9).sum())
    assert bound > 3
    assert max(done.logged(metrics.QP_WORKER_RESIDUAL)) < 1e-9


def test_server_margin_keeps_an_angle_to_every_remembered_update():
    margin = 0.1
    smallest = []

    class Looking(GradMAS):
        def server_direction(self, updates: Any) -> torch.Tensor:
            momentum = self.momentum_decay * self.momentum + updates.mean_delta
            direction = super().server_direction(updates)
            rows = self.memory.rows[: self.memory.used]
            smallest.append(float((rows @ direction / rows.norm(dim=1) / momentum.norm()).min()))
            return direction

    config = make_config("algorithm.name=gradma_s", PLAIN, *LIVELY, f"algorithm.qp.server_margin={margin}")
    done = follow(config, algorithm=Looking(memory_size=5, qp=ServerQPOptions(server_margin=margin)))
    assert done.logged(metrics.QP_FALLBACKS) == [0.0] * 7
    assert min(smallest) == pytest.approx(margin, abs=1e-9)


def test_drop_threshold_forgets_faded_updates():
    """memory_decay = 0.5 with delta = 0.3: an update is dropped two rounds after its worker was last seen."""
    args = (*LIVELY, "algorithm.memory_size=6")
    dropped, kept = run("gradma_s", *args, "algorithm.qp.drop_threshold=0.3"), run("gradma_s", *args)
    assert not close(dropped.params, kept.params, 1e-9)
    assert sum(dropped.logged(metrics.QP_SERVER_ACTIVE)) < sum(kept.logged(metrics.QP_SERVER_ACTIVE))


@pytest.mark.parametrize("scope", ["global", "tensor"])
@pytest.mark.parametrize("name", ["gradma", "gradma_w", "gradma_s"])
def test_diagnostics(name, scope):
    done = run(name, *LIVELY, f"algorithm.qp.scope={scope}", "algorithm.name=" + name, "algorithm.qp.log_errors=true")
    rows = done.module.history
    worker, server = name != "gradma_s", name != "gradma_w"
    for row in rows:
        assert (metrics.QP_WORKER_ACTIVE in row) == worker
        assert (metrics.QP_SERVER_ACTIVE in row) == server
        for side, most in (("worker", 3), ("server", 5)):
            if f"qp/{side}_active_anchors" in row:
                assert 0 <= row[f"qp/{side}_active_anchors"] <= most
                assert 0 < row[f"qp/{side}_norm_ratio"] <= 1 + 1e-12
                assert 0 <= row[f"qp/{side}_kkt_residual"] < 1e-9
        if server:
            kept, length = row[metrics.QP_SERVER_RATIO], row[metrics.QP_SERVER_LENGTH]
            assert row[metrics.QP_SERVER_ERROR] == pytest.approx(length * (1 - min(kept, 1) ** 2) ** 0.5, abs=1e-6)
            assert row[metrics.QP_FALLBACKS] == 0
            assert 0 <= row[metrics.QP_FROZEN_TENSORS] <= len(done.module.network.parameters.names)
    if server:
        assert [row[metrics.MEMORY_SLOTS] for row in rows] == sorted(row[metrics.MEMORY_SLOTS] for row in rows)
        assert rows[0][metrics.MEMORY_HITS] == rows[0][metrics.MEMORY_MAX_AGE] == 0
        hits, entries = (
            rows[-1][metrics.MEMORY_HITS],
            rows[-1][metrics.MEMORY_SLOTS] + rows[-1][metrics.MEMORY_EVICTIONS],
        )
        assert hits + entries == 7 * 2  # every sampled worker was remembered or entered
        assert 0 < rows[-1][metrics.MEMORY_MEAN_AGE] <= rows[-1][metrics.MEMORY_MAX_AGE] < 7


def test_the_worker_ratio_is_what_the_projection_left():
    """One problem per worker and step: the mean of |g~| / |g| over steps that had anchors; the largest errors."""
    done = watch("gradma_w", "local_lr=0.3", "num_rounds=1", "algorithm.qp.log_errors=true")
    errors = torch.cat([(step.gradient - step.direction).norm(dim=1) for step in done.algorithm.steps])
    assert done.logged(metrics.QP_WORKER_ERROR) == [float(errors.max())]
    ratios = torch.cat([step.direction.norm(dim=1) / step.gradient.norm(dim=1) for step in done.algorithm.steps])
    assert done.logged(metrics.QP_WORKER_RATIO) == [pytest.approx(float(ratios.mean()), abs=1e-12)]


@pytest.mark.parametrize("solver", ["exact", "clarabel"])
@pytest.mark.parametrize("kind", [GradMA, GradMAS, GradMAW])
def test_a_nan_ends_the_run_as_diverged(kind, solver):
    """No projection hides it: the round is not applied and the run stops there."""

    class Failing(kind):
        def local_direction(self, step: Any) -> torch.Tensor:
            direction = super().local_direction(step).clone()
            if len(rounds) == 3 and step.index == 2:
                direction[1, 7] = torch.nan
            return direction

        def begin_round(self, workers: np.ndarray, round: int) -> None:
            rounds.append(round)
            super().begin_round(workers, round)

    rounds: list[int] = []
    fields = {"qp": JointQPOptions(solver=solver), **({"memory_size": 6} if kind is not GradMAW else {})}
    config = make_config(
        f"algorithm.name={kind.name}", PLAIN, *LIVELY, f"algorithm.qp.solver={solver}", "engine=stacked"
    )
    done = follow(config, algorithm=Failing(**fields))
    assert done.module.scoreboard.diverged_round == 3
    assert len(done.module.history) == 3
    assert done.params.isfinite().all()
    assert torch.equal(done.rounds[3], done.rounds[2])


@pytest.mark.parametrize("scope", ["global", "tensor"])
@pytest.mark.parametrize("name", ["gradma", "gradma_w", "gradma_s"])
def test_a_rate_that_overflows_ends_the_run_as_diverged(name, scope):
    """NaN in gradients reaches the worker's projection first."""
    done = run(name, "local_lr=1e200", f"algorithm.qp.scope={scope}", "num_rounds=6")
    assert done.module.scoreboard.diverged_round is not None
    assert len(done.module.history) == done.module.scoreboard.diverged_round < 6
