"""Local steps taken all at once, where nothing happens between them, and one by one."""

import pytest
import torch

from fl_platform.algorithms.base import LocalBatch, LocalStep
from fl_platform.algorithms.fedavg import FedAvg
from fl_platform.kernels.perceptron import Perceptron
from tests.federations import make_config, make_module, synthetic_dataset, train


class StepByStep(FedAvg):
    """FedAvg that looks at every step."""

    def local_direction(self, step: LocalStep) -> torch.Tensor:
        return step.gradient


class ByAutograd(FedAvg):
    """FedAvg whose loss is its own, for all that is known."""

    def local_loss(self, batch: LocalBatch) -> torch.Tensor:
        return super().local_loss(batch)


@pytest.fixture
def descents(monkeypatch):
    """How many batches each call of ``Perceptron.descend`` was given."""
    seen, descend = [], Perceptron.descend

    def counting(kernel, params, buffers, x, *others):
        seen.append(len(x))
        return descend(kernel, params, buffers, x, *others)

    monkeypatch.setattr(Perceptron, "descend", counting)
    return seen


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("buffers", ["average", "local"])
def test_steps_at_once_have_the_bits_of_steps_one_by_one(descents, norm, buffers):
    args = ("engine=loop", f"model.norm={norm}", "precision=float32", f"buffers={buffers}", "num_rounds=4")
    at_once = train(make_config(*args))
    assert descents == [3] * 12  # four rounds of three workers
    one_by_one = train(make_config(*args), algorithm=StepByStep())
    assert len(descents) == 12
    assert at_once.params.equal(one_by_one.params)
    assert at_once.module.global_buffers.equal(one_by_one.module.global_buffers)
    assert at_once.figures() == one_by_one.figures()


def test_batches_of_different_lengths_are_not_padded(descents):
    """A worker of 9 samples has batches of 8 and 1."""
    args = ("engine=loop", "precision=float32", "cohort_size=6", "local_steps=5")
    at_once, one_by_one = train(make_config(*args)), train(make_config(*args), algorithm=StepByStep())
    assert descents
    assert at_once.params.equal(one_by_one.params)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_steps_at_once_are_those_of_autograd_but_for_rounding(descents, norm):
    """In float64, which autograd computes in any case, three rounds are known to ten digits more."""
    args = ("engine=loop", f"model.norm={norm}", "num_rounds=3", "cohort_size=6", "local_steps=5")
    images, steps = synthetic_dataset((3, 32, 32)), []

    def params(precision: str, algorithm: FedAvg) -> torch.Tensor:
        found = train(make_config(*args, f"precision={precision}"), algorithm=algorithm, dataset=images).params
        steps.append(len(descents))
        return found.double()

    at_once, by_autograd, exact = (
        params("float32", FedAvg()),
        params("float32", ByAutograd()),
        params("float64", FedAvg()),
    )
    assert steps[0] == steps[1] == steps[2] > 0
    assert not at_once.equal(by_autograd)
    assert (at_once - exact).norm() <= 2 * (by_autograd - exact).norm()


@pytest.mark.parametrize("args", [("engine=stacked",), ("engine=loop", "algorithm.name=fedprox")])
def test_other_engines_and_directions_go_step_by_step(descents, args):
    train(make_config(*args))
    assert not descents


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
