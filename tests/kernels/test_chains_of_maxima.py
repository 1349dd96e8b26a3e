"""Which layers of a network are computed as maxima of a convolution, and that their order makes no difference."""

import pytest
import torch
from torch import nn

from fl_platform.kernels import convolution
from fl_platform.models.layers import ConvolvedMaxima, MaxPool2d, Pass, running
from tests.kernels.convolved import KINDS, SHAPES, arithmetic, case, layers_of


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["first of LeNet-5", "second of LeNet-5"])
def test_relu_before_the_maxima_gives_the_same_numbers(monkeypatch, name, kind):
    given = case(SHAPES[name])
    after = layers_of(given, is_rectified=True)
    before = ConvolvedMaxima.of([after.convolution, nn.ReLU(), after.pooling, nn.Flatten()])
    assert before is not None
    assert len(before.layers) == 3
    assert before.is_rectified
    monkeypatch.setattr(convolution, "WORTH_IT", 1)
    pass_of_kernels = Pass(True, maxima=convolution.maxima)
    found, torchs = [], []
    for layers in (before, after):
        weight = after.convolution.weight.detach().requires_grad_()
        layers.convolution._parameters["weight"] = weight
        for forward_pass, numbers in ((pass_of_kernels, found), (Pass(True), torchs)):
            with arithmetic(kind), running(forward_pass):
                maxima = layers(given.x)
            [gradient] = torch.autograd.grad(maxima.float().square().sum(), weight)
            numbers += [maxima.detach(), gradient]
    assert type(maxima.grad_fn).__name__ != "MaximaBackward"
    for numbers in (found, torchs):
        assert numbers[0].equal(numbers[2])
        assert numbers[1].equal(numbers[3])


def test_chains_that_are_computed_in_one():
    layers = [nn.Conv2d(3, 32, 5), MaxPool2d(2), nn.ReLU(), nn.Flatten()]
    for chain, count in (
        ([0, 1, 2, 3], 3),
        ([0, 2, 1, 3], 3),
        ([0, 1, 3], 2),
        ([0, 1], 2),
        ([0, 2, 3], 0),
        ([0], 0),
        ([1, 2], 0),
    ):
        made = ConvolvedMaxima.of([layers[number] for number in chain])
        assert (0 if made is None else len(made.layers)) == count
    layers[2].register_forward_hook(lambda *_: None)
    made = ConvolvedMaxima.of(layers)
    assert made is not None
    assert len(made.layers) == 2
    assert not made.is_rectified
