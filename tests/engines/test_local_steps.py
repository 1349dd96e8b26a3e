"""Local steps taken all at once, where nothing happens between them, and one by one."""

import pytest
import torch

from fl_platform.algorithms.base import LocalBatch, LocalStep
from fl_platform.algorithms.fedavg import FedAvg
from fl_platform.kernels import onednn, perceptron
from fl_platform.kernels.perceptron import Perceptron
from tests.federations import make_config, synthetic_dataset, train


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

    def counting(kernel, params, buffers, batches, *others, **named):
        seen.append(len(batches))
        return descend(kernel, params, buffers, batches, *others, **named)

    monkeypatch.setattr(Perceptron, "descend", counting)
    return seen


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("buffers", ["average", "local"])
def test_steps_at_once_have_the_bits_of_steps_one_by_one(descents, norm, precision, buffers):
    args = ("engine=loop", f"model.norm={norm}", f"precision={precision}", f"buffers={buffers}", "num_rounds=4")
    at_once = train(make_config(*args))
    assert descents == [3] * 12  # four rounds of three workers
    one_by_one = train(make_config(*args), algorithm=StepByStep())
    assert len(descents) == 12
    assert at_once.params.equal(one_by_one.params)
    assert at_once.module.global_buffers.equal(one_by_one.module.global_buffers)
    assert at_once.figures() == one_by_one.figures()


def test_batches_of_different_lengths_are_not_padded(descents):
    """A worker of 9 samples has batches of 8 and 1."""
    args = ("engine=loop", "cohort_size=6", "local_steps=5")
    at_once, one_by_one = train(make_config(*args)), train(make_config(*args), algorithm=StepByStep())
    assert descents
    assert at_once.params.equal(one_by_one.params)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_large_layers_have_equal_bits_at_once_one_by_one_and_by_autograd(descents, monkeypatch, norm):
    """Batches of 5 to 8 of 3,072 numbers, which oneDNN multiplies where it is there; of one, which it does not."""
    config = make_config("engine=loop", f"model.norm={norm}", "precision=float32", "cohort_size=6", "local_steps=5")
    images = synthetic_dataset((3, 32, 32))

    def params(algorithm: FedAvg) -> torch.Tensor:
        return train(config, algorithm=algorithm, dataset=images).params

    at_once = params(FedAvg())
    assert descents
    assert at_once.equal(params(StepByStep()))
    assert at_once.equal(params(ByAutograd()))
    if onednn.IS_AVAILABLE:
        monkeypatch.setattr(onednn, "suits", lambda *_: False)
        assert not at_once.equal(params(ByAutograd()))  # so autograd went through oneDNN before


def test_without_torchscript_the_same_steps_are_python(monkeypatch, descents):
    scripted = train(make_config("engine=loop"))
    monkeypatch.setattr(perceptron, "scripted", lambda steps: steps)
    assert scripted.params.equal(train(make_config("engine=loop")).params)
    assert len(descents) == 18


@pytest.mark.parametrize("args", [("engine=stacked",), ("engine=loop", "algorithm.name=fedprox")])
def test_other_engines_and_directions_go_step_by_step(descents, args):
    train(make_config(*args))
    assert not descents
