"""Local steps taken all at once, where nothing happens between them, and one by one."""

import pytest
import torch

from fl_platform.algorithms.base import LocalBatch, LocalRun, LocalStep
from fl_platform.algorithms.fedavg import FedAvg
from fl_platform.data.sets.base import Dataset
from fl_platform.engines.loop import SingleObjective
from fl_platform.engines.training import LocalTraining
from fl_platform.federation.build import build
from fl_platform.kernels.perceptron import Perceptron
from tests.federations import Finished, described, make_config, make_module, synthetic_dataset, train


class StepByStep(FedAvg):
    """FedAvg that looks at every step."""

    def local_direction(self, step: LocalStep) -> torch.Tensor:
        return step.gradient


class ByAutograd(FedAvg):
    """FedAvg whose loss is its own, for all that is known."""

    def local_loss(self, batch: LocalBatch) -> torch.Tensor:
        return super().local_loss(batch)


class Finishes(FedAvg):
    """FedAvg whose workers do something at their end, for all that is known."""

    def finish_local(self, run: LocalRun) -> dict[str, torch.Tensor]:
        return {}


@pytest.fixture
def descents(monkeypatch):
    """How many batches each call of ``Perceptron.descend`` was given."""
    seen, descend = [], Perceptron.descend

    def counting(kernel, params, buffers, x, *others):
        seen.append(len(x))
        return descend(kernel, params, buffers, x, *others)

    monkeypatch.setattr(Perceptron, "descend", counting)
    return seen


def assert_equal(one: Finished, other: Finished) -> None:
    assert one.params.equal(other.params)
    assert one.module.global_buffers.equal(other.module.global_buffers)
    assert one.figures() == other.figures()


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("buffers", ["average", "local"])
def test_steps_at_once_have_the_bits_of_steps_one_by_one(descents, whole_workers, norm, buffers):
    args = ("engine=loop", f"model.norm={norm}", "precision=float32", f"buffers={buffers}", "num_rounds=4")
    whole = train(make_config(*args))
    assert whole_workers == [3] * 12  # four rounds of three workers
    assert not descents
    at_once = train(make_config(*args), algorithm=Finishes())
    assert descents == [3] * 12
    one_by_one = train(make_config(*args), algorithm=StepByStep())
    assert len(descents) == len(whole_workers) == 12
    assert_equal(whole, at_once)
    assert_equal(whole, one_by_one)


@pytest.mark.parametrize(
    "args",
    [
        ("cohort_size=6", "local_steps=5"),  # a worker of 9 samples has batches of 8 and 1
        ("cohort_size=6", "local_epochs=2", "threads=2"),
        ("cohort_size=6", "work.name=by_speed", "work.speed_spread=3", "local_steps=6", "model.norm=batch"),
        ("local_lr_schedule=cosine", "algorithm.name=fedavgm"),
        ("algorithm.name=gradma_s", "buffers=server", "model.norm=batch"),
    ],
    ids=" ".join,
)
def test_whole_workers_have_the_bits_of_hooks(whole_workers, monkeypatch, args):
    config = make_config("engine=loop", "precision=float32", *args)
    whole = train(config)
    assert whole_workers
    seen = len(whole_workers)
    monkeypatch.setattr(LocalTraining, "takes_whole_workers", lambda *_: False)
    assert_equal(whole, train(config))
    assert len(whole_workers) == seen


@pytest.mark.parametrize("shape", [(1, 9, 5), (3, 6, 4)])
def test_images_are_normalised_as_batches_are(whole_workers, shape):
    values = torch.linspace(0.2, 0.9, shape[0]).tolist()
    dataset = described(Dataset, name="synthetic", num_classes=3, shape=shape, mean=values, std=values)
    config = make_config("engine=loop", "precision=float32")
    whole = train(config, dataset=dataset)
    assert len(whole_workers) == 9
    assert_equal(whole, train(config, dataset=dataset, algorithm=StepByStep()))


def test_tables_of_numbers_are_taken_as_they_are(whole_workers):
    config = make_config("engine=loop", "precision=float32", "data.name=wine", "data.partition=iid")
    done = []
    for algorithm in (FedAvg(), StepByStep()):
        done.append(train(config, build(config, algorithm), algorithm=algorithm))
    assert len(whole_workers) == 9
    assert_equal(*done)


def test_augmented_batches_are_made_by_torch(descents, whole_workers):
    dataset = described(type(synthetic_dataset((3, 8, 8))), flip=True)
    config = make_config("engine=loop", "precision=float32")
    at_once = train(config, dataset=dataset)
    assert descents
    assert not whole_workers
    assert_equal(at_once, train(config, dataset=dataset, algorithm=StepByStep()))


@pytest.mark.parametrize(
    "args",
    [
        ("precision=float64",),
        ("engine=stacked",),
        ("local_momentum=0.5",),
        ("local_clip=1",),
        ("algorithm.name=fedprox",),
        ("algorithm.name=moon",),
        ("algorithm.name=fedbn", "model.norm=batch"),
        ("algorithm.name=mime",),
    ],
    ids=" ".join,
)
def test_everything_else_goes_another_way(whole_workers, args):
    train(make_config("engine=loop", "precision=float32", *args))
    assert not whole_workers


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_steps_at_once_are_those_of_autograd_but_for_rounding(whole_workers, norm):
    """In float64, which autograd computes in any case, three rounds are known to ten digits more."""
    args = ("engine=loop", f"model.norm={norm}", "num_rounds=3", "cohort_size=6", "local_steps=5")
    images, steps = synthetic_dataset((3, 32, 32)), []

    def params(precision: str, algorithm: FedAvg) -> torch.Tensor:
        found = train(make_config(*args, f"precision={precision}"), algorithm=algorithm, dataset=images).params
        steps.append(len(whole_workers))
        return found.double()

    at_once, by_autograd, exact = (
        params("float32", FedAvg()),
        params("float32", ByAutograd()),
        params("float64", FedAvg()),
    )
    assert steps[0] == steps[1] == steps[2] > 0
    assert not at_once.equal(by_autograd)
    assert (at_once - exact).norm() <= 2 * (by_autograd - exact).norm()


@pytest.mark.parametrize("precision", ["float32", "float64", "bf16-mixed"])
@pytest.mark.parametrize(
    "args",
    [
        ("model.norm=none",),  # with dropout
        ("model.norm=batch", "buffers=local", "cohort_size=6", "local_steps=5"),
        ("model.norm=batch", "work.name=by_speed", "work.speed_spread=3", "local_steps=6", "threads=2"),
        ("algorithm.name=fedavgm", "local_lr_schedule=cosine", "num_rounds=2"),
    ],
    ids=" ".join,
)
def test_steps_in_place_have_the_bits_of_steps_of_a_vector(monkeypatch, precision, args):
    config = make_config("engine=loop", "model.name=lenet5", "num_rounds=1", f"precision={precision}", *args)
    images = described(type(synthetic_dataset((3, 16, 16))), shape=(3, 16, 16), flip=True)
    in_place = train(config, dataset=images)
    monkeypatch.setattr(SingleObjective, "descend", lambda *_: None)
    assert_equal(in_place, train(config, dataset=images))


def test_steps_in_place_take_no_gradient_as_one_vector(monkeypatch):
    taken, empty = [], LocalTraining.empty
    monkeypatch.setattr(LocalTraining, "empty", lambda self, *args: taken.append(args[0]) or empty(self, *args))
    config = make_config("engine=loop", "model.name=lenet5", "num_rounds=1")
    train(config, dataset=synthetic_dataset((3, 16, 16)))
    assert taken == ["params"] * 3  # of three workers


@pytest.mark.parametrize("args", [("engine=stacked",), ("engine=loop", "algorithm.name=fedprox")])
def test_other_engines_and_directions_go_step_by_step(descents, whole_workers, args):
    train(make_config(*args))
    assert not descents
    assert not whole_workers


class LooksAtLayouts(FedAvg):
    """FedAvg that notes whether the first block's activations are channels last."""

    def local_loss(self, batch: LocalBatch) -> torch.Tensor:
        LAYOUTS.append(batch.activations[0].flatten(0, 1).is_contiguous(memory_format=torch.channels_last))
        return super().local_loss(batch)


LAYOUTS: list[bool] = []


@pytest.mark.parametrize("channels", [1, 3])
def test_convolutions_of_any_images_are_channels_last(channels):
    config = make_config("engine=loop", "precision=float32", "model.name=lenet5", "num_rounds=1")
    LAYOUTS.clear()
    train(config, make_module(config, dataset=synthetic_dataset((channels, 16, 16))), algorithm=LooksAtLayouts())
    assert LAYOUTS == [True] * 9
