"""Compiled linear layers and their derivatives beside torch's own products."""

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from fl_platform.kernels import linear
from fl_platform.models.layers import Linear, Pass, adopt_layers, running

pytestmark = pytest.mark.skipif(not linear.has_vectors(), reason="linear layers are not compiled for this processor")

Layer = Sequence[Tensor]


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


LAYERS: dict[str, Layer] = {
    "flat": (drawn(500, 784), drawn(200, 784), drawn(200)),
    "a small batch": (drawn(7, 784), drawn(200, 784), drawn(200)),
    "small": (drawn(64, 64), drawn(512, 64), drawn(512)),
    "no bias": (drawn(500, 784), drawn(200, 784)),
    "tokens": (drawn(20, 30, 784), drawn(200, 784), drawn(200)),
    "strided input": (drawn(784, 500).t(), drawn(200, 784), drawn(200)),
    "strided tokens": (drawn(30, 20, 784).transpose(0, 1), drawn(200, 784), drawn(200)),
    "every second sample": (drawn(1000, 784)[::2], drawn(200, 784), drawn(200)),
    "tied weight": (drawn(500, 784), drawn(784, 200).t(), drawn(200)),
    "one sample repeated": (drawn(1, 784).expand(500, 784), drawn(200, 784), drawn(200)),
    "every second column": (drawn(500, 784), drawn(200, 1568)[:, ::2], drawn(200)),
    "every second row": (drawn(500, 784), drawn(400, 784)[::2], drawn(200)),
    "one row repeated": (drawn(500, 784), drawn(1, 784).expand(200, 784), drawn(200)),
    "every second bias": (drawn(500, 784), drawn(200, 784), drawn(400)[::2]),
    "rows that are not a tile": (drawn(131, 1025), drawn(37, 1025), drawn(37)),
    "few outputs": (drawn(500, 2100), drawn(3, 2100), drawn(3)),
}


def in_both_passes(layer: Layer, product=linear.linear) -> list[Tensor]:
    """The layer's output and its derivatives by all that it is given."""
    parts = [part.detach().requires_grad_() for part in layer]
    found = product(*parts)
    return [found.detach(), *torch.autograd.grad(found, parts, drawn(*found.shape).to(found.dtype))]


def assert_as_exact_as_torch(layer: Layer) -> None:
    found, plain = in_both_passes(layer), in_both_passes(layer, F.linear)
    exact = in_both_passes([part.double() for part in layer], F.linear)
    for one, other, double in zip(found, plain, exact, strict=True):
        assert one.shape == double.shape
        assert (one - double).abs().max() <= 4 * (other - double).abs().max()


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_layer_and_its_derivatives_differ_by_rounding_only(layer):
    assert linear.suits(*layer)
    assert_as_exact_as_torch(layer)
    with_gradient = in_both_passes(layer)[0]
    with torch.no_grad():
        assert linear.linear(*layer).equal(with_gradient)


@pytest.mark.parametrize("wanted", [[0], [1], [2], [0, 2], [1, 2]], ids=str)
def test_derivatives_that_nobody_asks_for_are_left_out(wanted):
    parts = [part.clone() for part in LAYERS["flat"]]
    for index in wanted:
        parts[index].requires_grad_()
    found = linear.linear(*parts)
    gradient = drawn(*found.shape)
    expected = in_both_passes(LAYERS["flat"])
    gradients = torch.autograd.grad(found, [parts[index] for index in wanted], gradient)
    assert all(one.equal(expected[1 + index]) for index, one in zip(wanted, gradients, strict=True))


def test_a_gradient_that_is_one_number_repeated_or_negated():
    x, weight, bias = (part.clone().requires_grad_() for part in LAYERS["flat"])
    found = linear.linear(x, weight, bias)
    [whole] = torch.autograd.grad(found.sum(), bias, retain_graph=True)
    assert whole.equal(torch.full_like(bias, 500.0))
    negated = torch.complex(torch.zeros_like(found), -torch.ones_like(found)).detach().conj().imag
    assert negated.is_neg()
    [other] = torch.autograd.grad(found, bias, negated)
    assert other.equal(whole)


def test_a_gradient_has_a_gradient():
    layer = [part.double().float() for part in LAYERS["small"]]

    def penalty(product) -> list[Tensor]:
        parts = [part.clone().requires_grad_() for part in layer]
        gradients = torch.autograd.grad(product(*parts).square().sum(), parts, create_graph=True)
        return list(torch.autograd.grad(sum(one.square().sum() for one in gradients), parts))

    for one, other in zip(penalty(linear.linear), penalty(F.linear), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


def test_jacobians_of_many_gradients_at_once():
    x, weight, bias = LAYERS["small"]
    weight = weight.clone().requires_grad_()
    found, rows = linear.linear(x, weight, bias), torch.eye(6).unsqueeze(-1).expand(6, 6, 512)
    gradients = rows.new_zeros(6, *found.shape)
    gradients[:, :6] = rows
    [many] = torch.autograd.grad(found, weight, gradients, is_grads_batched=True, retain_graph=True)
    for one, gradient in zip(many, gradients, strict=True):
        torch.testing.assert_close(one, torch.autograd.grad(found, weight, gradient, retain_graph=True)[0])


def test_checkpoints_run_a_layer_again_outside_of_the_pass():
    layer = adopted(nn.Linear(784, 200))
    x = drawn(64, 784).requires_grad_()
    with running(Pass(train=True, linear=linear.linear)):
        found = checkpoint(layer, x, use_reentrant=False)
    [gradient] = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(F.linear(x, layer.weight, layer.bias).sum(), x)[0])


@torch.no_grad()
def test_a_model_that_diverged_stays_so():
    x, weight, bias = LAYERS["flat"]
    assert linear.linear(x, torch.full_like(weight, torch.nan), bias).isnan().all()
    assert linear.linear(x, weight, torch.full_like(bias, torch.inf)).isinf().all()


class Subclass(torch.Tensor):
    """A tensor of a user's own kind."""


@torch.no_grad()
def test_other_layers_are_left_to_torch():
    x, weight, bias = LAYERS["flat"]
    assert linear.suits(x, nn.Parameter(weight), nn.Parameter(bias))
    for other in (
        (x[:5], weight[:20]),
        (x[:0], weight),
        (drawn(100_000), drawn(20, 100_000)),
        (x.double(), weight.double()),
        (x, weight, bias.double()),
        (x.bfloat16(), weight.bfloat16()),
        (x.to(torch.complex64), weight.to(torch.complex64)),
        (x.to("meta"), weight.to("meta")),
        (x, weight, drawn(1)),
        (x, weight, drawn(1).expand(200, 1)),
        (x, weight[:, :700]),
        (x, weight.to_sparse()),
        (x.to_mkldnn(), weight),
        (x, weight.as_subclass(Subclass)),
        (x.as_subclass(Subclass), weight),
        (torch.complex(x, x).conj().imag, weight),
    ):
        assert not linear.suits(*other)
    with torch.autocast("cpu", torch.bfloat16):
        assert not linear.suits(x, weight)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own decompositions
def test_transforms_of_functions_are_left_to_torch():
    x, weight, bias = LAYERS["flat"]

    def loss(weight: Tensor, product=linear.linear) -> Tensor:
        return product(x, weight, bias).square().mean()

    def plain(weight: Tensor) -> Tensor:
        return loss(weight, F.linear)

    stack = torch.stack([weight, weight])
    assert torch.func.grad(loss)(weight).equal(torch.func.grad(plain)(weight))
    assert torch.vmap(loss)(stack).equal(torch.vmap(plain)(stack))
    with forward_ad.dual_level():
        assert not linear.suits(forward_ad.make_dual(x, x), weight)


@torch.no_grad()
def test_a_compiler_can_trace_a_layer():
    layer = LAYERS["flat"]
    compiled = torch.compile(lambda *layer: linear.linear(*layer), backend="eager", fullgraph=True)
    assert compiled(*layer).equal(F.linear(*layer))


@torch.no_grad()
def test_a_wrong_width_is_reported_by_torch():
    x, weight, _ = LAYERS["flat"]
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        linear.linear(x, weight[:, :700])


def adopted(module: nn.Module) -> nn.Module:
    adopt_layers(module)
    return module


def test_linear_layers_are_adopted_with_hooks_and_shared_weights():
    first, last, seen = nn.Linear(8, 4), nn.Linear(4, 8, bias=False), []
    last.weight = nn.Parameter(first.weight.detach().t())
    first.register_forward_hook(lambda module, given, found: seen.append(found))
    module = nn.Sequential(first, nn.Sequential(last, nn.utils.parametrizations.weight_norm(nn.Linear(8, 2))))
    x, values = drawn(3, 8), module.state_dict()
    expected = module(x)
    assert [type(layer) is Linear for layer in (adopted(module)[0], module[1][0], module[1][1])] == [True, True, False]
    assert module(x).equal(expected)
    assert len(seen) == 2
    assert list(module.state_dict()) == list(values)


def test_a_pass_says_what_computes_linear_layers():
    layer, x = adopted(nn.Linear(784, 200)), drawn(64, 784)
    with torch.no_grad(), running(Pass(train=False, linear=linear.linear)):
        assert layer(x).equal(linear.forward(x, layer.weight, layer.bias))
    with running(Pass(train=False)):
        assert layer(x).equal(F.linear(x, layer.weight, layer.bias))
    assert layer(x).equal(F.linear(x, layer.weight, layer.bias))
