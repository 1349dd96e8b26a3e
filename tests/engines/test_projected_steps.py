"""Workers that a kernel trains along projected gradients, beside the same steps hook by hook and beside float64."""

from contextlib import contextmanager

import pytest
import torch

from fl_platform.algorithms.base import LocalBatch, LocalStep
from fl_platform.algorithms.gradma import GradMA, GradMAW, ProjectedWorker
from fl_platform.federation.build import build
from fl_platform.runs import metrics
from tests.federations import make_config, synthetic_dataset, train

FLOAT32 = ("engine=loop", "precision=float32", "algorithm.name=gradma", "num_rounds=4", "local_steps=5")


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
def test_the_kernel_has_the_bits_of_the_hooks(projected_workers, monkeypatch, args):
    config = make_config(*FLOAT32, *args)
    at_once = train(config)
    assert projected_workers == [config.local_steps] * 4 * config.cohort_size
    with hook_by_hook(monkeypatch):
        one_by_one = train(config)
    assert len(projected_workers) == 4 * config.cohort_size
    assert at_once.params.equal(one_by_one.params)
    assert at_once.module.global_buffers.equal(one_by_one.module.global_buffers)
    assert at_once.figures() == one_by_one.figures()
    assert metrics.GRADIENT_PASSES in at_once.figures()[-1]


@pytest.mark.parametrize(
    "args",
    [
        ("local_steps=7",),  # a worker of 9 samples has batches of 8 and 1
        ("work.name=by_speed", "work.speed_spread=3", "local_steps=6", "model.norm=batch"),
        ("cohort_chunk=2", "algorithm.name=gradma_w"),
    ],
    ids=" ".join,
)
def test_unequal_batches_and_steps_have_the_bits_of_the_hooks(projected_workers, monkeypatch, args):
    config = make_config(*FLOAT32, "cohort_size=6", *args)
    whole = train(config)
    assert len(projected_workers) == 24
    with hook_by_hook(monkeypatch):
        one_by_one = train(config)
    assert whole.params.equal(one_by_one.params)
    assert whole.figures() == one_by_one.figures()


def test_tables_of_numbers_are_taken_as_they_are(projected_workers, monkeypatch):
    config = make_config(*FLOAT32, "data.name=wine", "data.partition=iid")

    def trained():
        algorithm = GradMA(memory_size=5)
        return train(config, build(config, algorithm), algorithm=algorithm)

    whole = trained()
    assert len(projected_workers) == 12
    with hook_by_hook(monkeypatch):
        assert whole.params.equal(trained().params)


def test_projections_are_those_of_float64_but_for_rounding(projected_workers):
    """Rounds in which anchors are opposed, from synthetic images."""
    args, images = ("engine=loop", "algorithm.name=gradma", "num_rounds=3", "local_steps=5"), synthetic_dataset()
    found, exact = (train(make_config(*args, f"precision={kind}"), dataset=images) for kind in ("float32", "float64"))
    assert len(projected_workers) == 9  # float64 is left to the hooks
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
def test_rules_of_a_subclass_are_called(projected_workers, kind):
    train(make_config(*FLOAT32), algorithm=kind(memory_size=5) if issubclass(kind, GradMA) else kind())
    assert not projected_workers


def test_a_rule_that_is_replaced_on_the_object_is_called(projected_workers):
    algorithm, steps = GradMAW(), []
    own = algorithm.anchors
    algorithm.anchors = lambda step: steps.append(step.index) or own(step)
    train(make_config(*FLOAT32), algorithm=algorithm)
    assert steps
    assert not projected_workers


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
def test_everything_else_goes_step_by_step(projected_workers, args):
    config = make_config(*FLOAT32, *args)
    train(config, dataset=synthetic_dataset((1, 16, 16)) if config.model.name == "lenet5" else None)
    assert not projected_workers


def test_what_a_worker_keeps_is_not_written_over(projected_workers):
    """x_{-1} of a worker is a vector of its own, while the kernel's are used by the next one."""
    done = train(make_config(*FLOAT32, "cohort_size=6", "num_rounds=1"))
    kept = done.module.states.state_dict()["last_local"]["rows"]
    assert len(kept) == len(projected_workers) == 6
    assert all(not kept[i].equal(kept[j]) for i in range(6) for j in range(i))
