"""Workers with different numbers of steps, momentum, weight decay and clipping: closed forms and equal engines."""

import numpy as np
import pytest
import torch

from fl_platform.algorithms.inputs import LocalStep, effective_steps
from fl_platform.algorithms.scaffold import Scaffold
from fl_platform.engines import loop
from fl_platform.federation import round as round_module
from fl_platform.runs import metrics
from tests.algorithms.trajectories import run_quadratics
from tests.federations import make_config, synthetic_dataset, train

RATE = 0.15
STEPS = np.array([4, 1, 3, 6, 2])
TARGETS = np.random.default_rng(3).integers(0, 256, (5, 4)).astype(np.uint8)
ARGUMENTS = (f"local_lr={RATE}", "num_rounds=4", "server_lr=0.8", "engine=stacked")
CLOSE = {"rtol": 0, "atol": 1e-13}


@pytest.fixture
def unequal(monkeypatch):
    """Worker i takes STEPS[i] steps in every round."""
    monkeypatch.setattr(round_module, "local_steps", lambda config, streams, workers, round: STEPS[workers])


def test_a_worker_contracts_by_its_own_number_of_steps(unequal):
    """On f_i = |x - a_i|^2 / 2 worker i sends (1 - (1 - h)^I_i) (x_t - a_i)."""
    done, a = run_quadratics("fedavg", *ARGUMENTS, targets=TARGETS)
    for seen in done.algorithm.server_steps:
        workers = seen.updates.workers
        k = torch.from_numpy(1 - (1 - RATE) ** STEPS[workers].astype(float))[:, None]
        assert torch.allclose(seen.updates.delta, k * (seen.before - a[workers]), **CLOSE)
        assert seen.updates.local_steps.tolist() == STEPS[workers].tolist()
    assert set(done.logged(metrics.LOCAL_STEPS)) == {STEPS.mean()}
    assert set(done.logged(metrics.GRADIENT_PASSES)) == {STEPS.sum()}


def test_scaffold_keeps_the_mean_of_each_worker_s_own_gradients(unequal):
    """Its gradients are (1 - h)^tau (x_0 - a_i): their mean is k_i (x_0 - a_i), k_i = (1 - (1 - h)^I_i) / (h I_i)."""
    done, a = run_quadratics("scaffold", *ARGUMENTS, "num_rounds=1", targets=TARGETS)
    k = torch.from_numpy((1 - (1 - RATE) ** STEPS.astype(float)) / (RATE * STEPS))[:, None]
    control = k * (done.rounds[0] - a)
    assert torch.allclose(done.table("control"), control, **CLOSE)
    assert torch.allclose(done.algorithm.control, control.mean(0), **CLOSE)


def test_feddyn_accumulates_the_displacement_of_each_worker_s_own_steps(unequal):
    """Displacement k_i (a_i - x_t - alpha u_i), k_i = (1 - (1 - h (1 + alpha))^I_i) / (1 + alpha)."""
    alpha = 0.3
    done, a = run_quadratics("feddyn", *ARGUMENTS, f"algorithm.alpha={alpha}", targets=TARGETS)
    k = torch.from_numpy((1 - (1 - RATE * (1 + alpha)) ** STEPS.astype(float)) / (1 + alpha))[:, None]
    u = torch.zeros_like(a)
    for t in range(4):
        move = k * (a - done.rounds[t] - alpha * u)
        u = u + move
        expected = done.rounds[t] + 0.8 * (move.mean(0) + u.mean(0))
        assert torch.allclose(done.rounds[t + 1], expected, **CLOSE)


@pytest.mark.parametrize("statistic", ["full", "round"])
def test_mimelite_s_statistic_does_not_depend_on_the_number_of_steps(unequal, statistic):
    """The mean gradient at x_t is x_t - a_i, over all data as over the batches of any number of steps."""
    done, a = run_quadratics("mimelite", *ARGUMENTS, f"algorithm.statistic={statistic}", targets=TARGETS)
    for seen in done.algorithm.server_steps:
        assert torch.allclose(seen.updates.sent["gradient"], seen.before - a[seen.updates.workers], **CLOSE)
    passes = STEPS.sum() + (5 if statistic == "full" else STEPS.sum())
    assert set(done.logged(metrics.GRADIENT_PASSES)) == {passes}


def test_what_the_server_is_given_suffices_for_fednova(unequal):
    """sum_i p_i tau_i * sum_i p_i d_i / tau_i, with d_i = (1 - (1 - h)^I_i) (x_t - a_i)."""
    done, a = run_quadratics("fedavg", *ARGUMENTS, "num_rounds=1", targets=TARGETS)
    [seen] = done.algorithm.server_steps
    steps = seen.updates.effective_steps
    direction = (seen.updates.weights @ steps) * seen.updates.average(seen.updates.delta / steps[:, None])
    k = torch.from_numpy((1 - (1 - RATE) ** STEPS.astype(float)) / STEPS)[:, None]
    assert torch.allclose(direction, STEPS.mean() * (k * (seen.before - a)).mean(0), **CLOSE)


def test_momentum_decay_and_clipping_are_those_of_torch():
    """Against torch.optim.SGD and clip_grad_norm_ on the same quadratic, for a worker that is alone."""
    args = ("local_steps=5", "local_momentum=0.8", "local_weight_decay=0.05", "local_clip=0.7", "num_rounds=2")
    done, a = run_quadratics("fedavg", f"local_lr={RATE}", *args, targets=TARGETS[:1])
    x = torch.nn.Parameter(done.rounds[0].clone())
    for t in range(2):
        sgd = torch.optim.SGD([x], lr=RATE, momentum=0.8, weight_decay=0.05)  # anew in every round
        for _ in range(5):
            sgd.zero_grad()
            ((x - a[0]).square().sum() / 2).backward()
            torch.nn.utils.clip_grad_norm_([x], 0.7)
            sgd.step()
        assert torch.allclose(done.rounds[t + 1], x.detach(), **CLOSE)


def test_effective_steps_are_the_sum_of_the_weights_of_gradients():
    """With a constant direction g, v_k = (1 - m^k) / (1 - m) g: the displacement over h g is the sum of them."""
    for momentum in (0.0, 0.5, 0.9):
        for count in range(1, 8):
            velocity = total = 0.0
            for _ in range(count):
                velocity = momentum * velocity + 1
                total += velocity
            assert effective_steps(np.array([count]), momentum)[0] == pytest.approx(total, rel=1e-12)


def test_scaffold_with_momentum_keeps_a_weighted_mean_of_gradients():
    """A constant gradient is its own weighted mean, whatever the weights."""

    class Constant(Scaffold):
        def local_direction(self, step: LocalStep) -> torch.Tensor:
            return torch.ones_like(step.gradient)

    done = train(
        make_config("local_momentum=0.9", "cohort_size=6", "num_rounds=1", "local_epochs=1"), algorithm=Constant()
    )
    assert torch.allclose(done.algorithm.control, torch.ones_like(done.params), rtol=0, atol=1e-12)


UNEQUAL = {
    "epochs": ("local_epochs=1",),
    "stragglers": ("work.name=uniform", "work.straggler_share=1", "local_steps=4"),
    "speeds and momentum": ("work.name=by_speed", "work.speed_spread=2", "local_steps=5", "local_momentum=0.9"),
    "everything": ("local_epochs=2", "work.name=uniform", "local_clip=0.5", "local_weight_decay=0.01"),
}


@pytest.mark.parametrize(("case", "model"), [(case, "mlp") for case in UNEQUAL] + [("everything", "lenet5")])
def test_loop_equals_stacked_in_chunks_and_all_at_once(case, model):
    dataset = synthetic_dataset((3, 16, 16)) if model == "lenet5" else None
    args = (*UNEQUAL[case], "cohort_size=6", "num_rounds=2", f"model.name={model}", "algorithm.name=gradma_w")
    loop = train(make_config(*args, "engine=loop"), dataset=dataset)
    for extra in (("engine=stacked",), ("engine=stacked", "cohort_chunk=4")):
        other = train(make_config(*args, *extra), dataset=dataset)
        assert torch.allclose(loop.params, other.params, rtol=0, atol=1e-10)
        assert torch.allclose(loop.module.global_buffers, other.module.global_buffers, rtol=0, atol=1e-10)
        for mine, its in zip(loop.figures(), other.figures(), strict=True):
            assert mine.keys() == its.keys()
            for name in (metrics.TRAIN_LOSS, metrics.QP_WORKER_RATIO, metrics.GRADIENT_PASSES, metrics.LOCAL_STEPS):
                assert mine[name] == pytest.approx(its[name], abs=1e-9)


def test_the_kernel_takes_unequal_plain_steps_and_nothing_else(whole_workers):
    train(make_config("engine=loop", "precision=float32", "local_epochs=1", "cohort_size=6", "num_rounds=1"))
    assert whole_workers == [4, 3, 2, 1, 1, 1]  # longest first
    whole_workers.clear()
    for key in ("local_momentum=0.5", "local_weight_decay=0.1", "local_clip=1"):
        train(make_config("engine=loop", "precision=float32", key, "num_rounds=1"))
    assert not whole_workers


def test_long_work_is_gathered_in_pieces(monkeypatch):
    args = ("engine=loop", "local_steps=7", "num_rounds=2")
    whole = train(make_config(*args)), train(make_config(*args, "algorithm.name=fedprox"))
    monkeypatch.setattr(loop, "GATHERED", 3)
    pieces = train(make_config(*args)), train(make_config(*args, "algorithm.name=fedprox"))
    assert all(a.params.equal(b.params) and a.figures() == b.figures() for a, b in zip(whole, pieces, strict=True))


def test_a_finished_worker_s_statistics_stay_as_they_are():
    """buffers=local: what a worker keeps after one step is the same beside one that takes six."""
    args = ("buffers=local", "num_rounds=1", "cohort_size=6", "engine=stacked", "work.name=by_speed", "local_steps=6")
    together = train(make_config(*args, "work.speed_spread=3"))
    alone = train(make_config(*args, "work.speed_spread=3", "cohort_chunk=1"))
    rows = [done.module.states.state_dict()["running_statistics"]["rows"] for done in (together, alone)]
    assert len(rows[0]) == 6
    assert all(torch.allclose(mine, its, rtol=0, atol=1e-12) for mine, its in zip(*rows, strict=True))
