"""Compiled linear layers in bfloat16 beside torch's own products under autocast."""

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fl_platform.kernels import linear
from fl_platform.kernels.arrays import is_multiplied
from fl_platform.models.layers import Linear, adopt_layers
from fl_platform.models.network import Network

pytestmark = pytest.mark.skipif(
    not is_multiplied(torch.bfloat16), reason="this processor does not multiply numbers of bfloat16"
)

NARROW = torch.bfloat16
Layer = Sequence[Tensor]


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


LAYERS: dict[str, Layer] = {
    "first of a perceptron": (drawn(64, 784), drawn(200, 784), drawn(200)),
    "after convolutions": (drawn(64, 1600).to(NARROW), drawn(512, 1600), drawn(512)),
    "an evaluation": (drawn(1000, 784), drawn(200, 784), drawn(200)),
    "many outputs": (drawn(40, 96).to(NARROW), drawn(1100, 96), drawn(1100)),
    "many inputs": (drawn(20, 4200), drawn(65, 4200), drawn(65)),
    "a small batch": (drawn(7, 784).to(NARROW), drawn(200, 784), drawn(200)),
    "one sample": (drawn(1, 2000).to(NARROW), drawn(600, 2000), drawn(600)),
    "odd all over": (drawn(131, 1025), drawn(37, 1025), drawn(37)),
    "odd and narrow": (drawn(131, 1025).to(NARROW), drawn(37, 1025), drawn(37)),
    "few outputs": (drawn(501, 2100), drawn(3, 2100), drawn(3)),
    "few inputs": (drawn(600, 5).to(NARROW), drawn(400, 5), drawn(400)),
    "no bias": (drawn(500, 784), drawn(200, 784)),
    "tokens": (drawn(20, 30, 784), drawn(200, 784), drawn(200)),
    "strided input": (drawn(784, 500).t(), drawn(200, 784), drawn(200)),
    "every second column": (drawn(500, 784).to(NARROW), drawn(200, 1568)[:, ::2], drawn(200)),
    "every second bias": (drawn(500, 784), drawn(200, 784), drawn(400)[::2]),
}
"""Inputs of float32 or bfloat16, weights and biases of float32."""


def in_both_passes(layer: Layer, product=linear.linear) -> list[Tensor]:
    """The layer's output and its derivatives by all that it is given."""
    parts = [part.detach().requires_grad_() for part in layer]
    with torch.autocast("cpu", NARROW):
        found = product(*parts)
    return [found.detach(), *torch.autograd.grad(found, parts, gradient_of(found))]


def gradient_of(found: Tensor) -> Tensor:
    return drawn(*found.shape).to(found.dtype)


def exactly(layer: Layer) -> list[Tensor]:
    """The same of numbers rounded to bfloat16, in float64."""
    parts = [part.to(NARROW).double().requires_grad_() for part in layer]
    found = F.linear(*parts)
    gradient = gradient_of(found).to(NARROW).double()
    return [found.detach(), *torch.autograd.grad(found, parts, gradient)]


def suits(*layer: Tensor) -> bool:
    with torch.autocast("cpu", NARROW):
        return linear.suits(*layer)


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_layer_and_its_derivatives_are_rounded_once(layer):
    assert suits(*layer)
    for one, double in zip(in_both_passes(layer), exactly(layer), strict=True):
        assert one.shape == double.shape
        digits = 2.0**-8 if one.dtype == NARROW else 0.0
        assert ((one.double() - double).abs() <= digits * double.abs() + 2e-6 * double.abs().max()).all()


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_types_are_those_of_autocast(layer):
    kinds = [[part.dtype for part in in_both_passes(layer, product)] for product in (linear.linear, F.linear)]
    assert kinds[0] == kinds[1]


def test_an_evaluation_has_the_bits_of_a_training_pass():
    for layer in LAYERS.values():
        with torch.no_grad(), torch.autocast("cpu", NARROW):
            found = linear.linear(*layer)
        assert found.equal(in_both_passes(layer)[0])


@pytest.mark.parametrize("wanted", [[0], [1], [2], [0, 2], [1, 2]], ids=str)
def test_derivatives_that_nobody_asks_for_are_left_out(wanted):
    layer = LAYERS["after convolutions"]
    parts = [part.clone() for part in layer]
    for index in wanted:
        parts[index].requires_grad_()
    with torch.autocast("cpu", NARROW):
        found = linear.linear(*parts)
    gradients = torch.autograd.grad(found, [parts[index] for index in wanted], gradient_of(found))
    expected = in_both_passes(layer)
    assert all(one.equal(expected[1 + index]) for index, one in zip(wanted, gradients, strict=True))


def test_a_gradient_has_a_gradient():
    def penalty(product) -> list[Tensor]:
        parts = [part.clone().requires_grad_() for part in LAYERS["after convolutions"]]
        with torch.autocast("cpu", NARROW):
            found = product(*parts).float()
        gradients = torch.autograd.grad(found.square().sum(), parts, create_graph=True)
        return list(torch.autograd.grad(sum(one.float().square().sum() for one in gradients), parts))

    for one, other in zip(penalty(linear.linear), penalty(F.linear), strict=True):
        assert one.dtype == other.dtype
        assert (one - other).abs().max() <= 0.02 * other.abs().max()


def test_jacobians_of_many_gradients_at_once():
    x, weight, bias = LAYERS["after convolutions"]
    weight = weight.clone().requires_grad_()
    with torch.autocast("cpu", NARROW):
        found = linear.linear(x, weight, bias)
    gradients = drawn(3, *found.shape).to(NARROW)
    [many] = torch.autograd.grad(found, weight, gradients, is_grads_batched=True, retain_graph=True)
    for one, gradient in zip(many, gradients, strict=True):
        [alone] = torch.autograd.grad(found, weight, gradient, retain_graph=True)
        assert (one - alone).abs().max() <= 2.0**-7 * alone.abs().max()


@torch.no_grad()
def test_a_model_that_diverged_stays_so():
    x, weight, bias = LAYERS["first of a perceptron"]
    with torch.autocast("cpu", NARROW):
        assert linear.linear(x, torch.full_like(weight, torch.nan), bias).isnan().all()
        assert linear.linear(x, weight, torch.full_like(bias, torch.inf)).isinf().all()
        assert linear.linear(torch.full_like(x, torch.inf), weight, bias).isfinite().sum() == 0


@torch.no_grad()
def test_other_layers_are_left_to_torch():
    x, weight, bias = LAYERS["first of a perceptron"]
    assert suits(x.to(NARROW), nn.Parameter(weight), nn.Parameter(bias))
    for other in (
        (x[:5], weight[:20]),
        (x[:0], weight),
        (x.double(), weight.double()),
        (x.half(), weight),
        (x, weight.to(NARROW)),
        (x, weight, bias.to(NARROW)),
        (x, weight.to("meta")),
        (x, weight, drawn(1)),
        (x, weight[:, :700]),
    ):
        assert not suits(*other)
    assert not linear.suits(x.to(NARROW), weight, bias)  # outside of autocast


def test_layers_of_networks_in_bfloat16_are_compiled_ahead(monkeypatch):
    asked = []
    monkeypatch.setattr(linear, "compiled", lambda *names: asked.append(names))
    module = nn.Sequential(nn.Linear(8, 4))
    linear.compile_linear(Network(module, NARROW), torch.float32)
    assert asked == [("forward", NARROW), ("backward", NARROW)]
    asked.clear()
    linear.compile_linear(Network(nn.Sequential(nn.Conv2d(1, 1, 3)), NARROW), torch.float32)
    monkeypatch.setattr(linear, "has_code", lambda dtype: False)
    linear.compile_linear(Network(module, NARROW), torch.float32)
    assert not asked


def test_adopted_layers_are_compiled_within_a_pass():
    module = nn.Linear(784, 200)
    adopt_layers(module)
    assert type(module) is Linear
    x, parts = LAYERS["first of a perceptron"][0], (module.weight, module.bias)
    with torch.autocast("cpu", NARROW):
        assert linear.linear(x, *parts).detach().equal(linear.forward(x, *parts))
