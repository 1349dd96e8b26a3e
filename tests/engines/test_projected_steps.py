"""Steps along projected gradients in the kernel for them, beside the same steps hook by hook and beside float64."""

from contextlib import contextmanager

import pytest
import torch

from fl_platform.algorithms.base import LocalBatch, LocalStep
from fl_platform.algorithms.gradma import GradMA, GradMAW, ProjectedWorker
from fl_platform.engines import loop
from fl_platform.kernels.projected_steps import ProjectedSteps
from fl_platform.runs import metrics
from tests.federations import make_config, synthetic_dataset, train

FLOAT32 = ("engine=loop", "precision=float32", "algorithm.name=gradma", "num_rounds=4", "local_steps=5")


@pytest.fixture
def descents(monkeypatch):
    """How many steps each call of ``ProjectedSteps.descend`` was asked for."""
    seen, descend = [], ProjectedSteps.descend

    def counting(kernel, start, center, before, buffers, batches, num_steps, rate, into):
        seen.append(num_steps)
        return descend(kernel, start, center, before, buffers, batches, num_steps, rate, into)

    monkeypatch.setattr(ProjectedSteps, "descend", counting)
    return seen


@contextmanager
def hook_by_hook(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(ProjectedWorker, "projected_descent", lambda self: None)
        yield


@pytest.mark.parametrize(
    "args",
    [
        ("local_steps=5",),
        ("algorithm.qp.scope=tensor",),
        ("algorithm.previous_model=global",),
        ("algorithm.previous_model=global", "local_steps=1"),
        ("local_steps=1",),
        ("model.norm=batch", "algorithm.qp.worker_margin=0.1"),
        ("buffers=local", "model.norm=batch", "algorithm.name=gradma_w"),
        ("cohort_size=6", "threads=2", "algorithm.qp.scope=tensor"),
    ],
    ids=" ".join,
)
def test_the_kernel_has_the_bits_of_the_hooks(descents, monkeypatch, args):
    config = make_config(*FLOAT32, *args)
    at_once = train(config)
    assert descents == [config.local_steps] * 4 * config.cohort_size
    with hook_by_hook(monkeypatch):
        one_by_one = train(config)
    assert len(descents) == 4 * config.cohort_size
    assert at_once.params.equal(one_by_one.params)
    assert at_once.module.global_buffers.equal(one_by_one.module.global_buffers)
    assert at_once.figures() == one_by_one.figures()
    assert metrics.GRADIENT_PASSES in at_once.figures()[-1]


def test_unequal_batches_and_steps_that_are_gathered_in_pieces(descents, monkeypatch):
    config = make_config(*FLOAT32, "cohort_size=6", "local_steps=7", "local_momentum=0")
    whole = train(config)
    monkeypatch.setattr(loop, "GATHERED", 3)
    pieces = train(config)
    assert len(descents) == 48
    with hook_by_hook(monkeypatch):
        one_by_one = train(config)
    for other in (pieces, one_by_one):
        assert whole.params.equal(other.params)
        assert whole.figures() == other.figures()


def test_projections_are_those_of_float64_but_for_rounding(descents):
    """Rounds in which anchors are opposed, from synthetic images."""
    args, images = ("engine=loop", "algorithm.name=gradma", "num_rounds=3", "local_steps=5"), synthetic_dataset()
    found, exact = (train(make_config(*args, f"precision={kind}"), dataset=images) for kind in ("float32", "float64"))
    assert len(descents) == 9  # float64 is left to the hooks
    assert exact.figures()[-1][metrics.QP_WORKER_ACTIVE] > 0
    assert (found.params.double() - exact.params).norm() <= 1e-5 * exact.params.norm()


class OtherAnchors(GradMAW):
    """GradMA-W whose gradients must only not oppose the drift."""

    def anchors(self, step: LocalStep) -> list[torch.Tensor]:
        return super().anchors(step)[-1:] if step.index else []


class OtherDirection(GradMA):
    """GradMA that looks at every direction."""

    def local_direction(self, step: LocalStep) -> torch.Tensor:
        return super().local_direction(step)


class OtherLoss(GradMA):
    """GradMA with a loss of its own, for all that is known."""

    def local_loss(self, batch: LocalBatch) -> torch.Tensor:
        return super().local_loss(batch)


@pytest.mark.parametrize("kind", [OtherAnchors, OtherDirection, OtherLoss])
def test_rules_of_a_subclass_are_called(descents, kind):
    train(make_config(*FLOAT32), algorithm=kind(memory_size=5) if issubclass(kind, GradMA) else kind())
    assert not descents


def test_a_rule_that_is_replaced_on_the_object_is_called(descents):
    algorithm, steps = GradMAW(), []
    own = algorithm.anchors
    algorithm.anchors = lambda step: steps.append(step.index) or own(step)
    train(make_config(*FLOAT32), algorithm=algorithm)
    assert steps
    assert not descents


@pytest.mark.parametrize(
    "args",
    [
        ("engine=stacked",),
        ("precision=float64",),
        ("local_momentum=0.5",),
        ("local_clip=1",),
        ("local_weight_decay=0.1",),
        ("algorithm.qp.solver=clarabel",),
        ("algorithm.qp.log_errors=true",),
        ("algorithm.name=gradma_s",),
        ("model.name=lenet5", "num_rounds=1", "local_steps=1"),
    ],
    ids=" ".join,
)
def test_everything_else_goes_step_by_step(descents, args):
    config = make_config(*FLOAT32, *args)
    train(config, dataset=synthetic_dataset((1, 16, 16)) if config.model.name == "lenet5" else None)
    assert not descents


def test_what_a_worker_keeps_is_not_written_over(descents):
    """x_{-1} of a worker is a vector of its own, while the kernel's are used by the next one."""
    done = train(make_config(*FLOAT32, "cohort_size=6", "num_rounds=1"))
    kept = done.module.states.state_dict()["last_local"]["rows"]
    assert len(kept) == len(descents) == 6
    assert all(not kept[i].equal(kept[j]) for i in range(6) for j in range(i))
