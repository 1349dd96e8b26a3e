"""Linear layers by oneDNN beside the same by torch's own products."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from fl_platform.kernels import onednn

pytestmark = pytest.mark.skipif(not onednn.IS_AVAILABLE, reason="torch has no oneDNN here")


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


LAYERS = {
    "flat": (drawn(500, 784), drawn(200, 784), drawn(200)),
    "a small batch": (drawn(7, 784), drawn(200, 784), drawn(200)),
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
    "negated": (torch.complex(drawn(500, 784), drawn(500, 784)).conj().imag, drawn(200, 784), drawn(200)),
}


def derivatives(layer: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """The layer's value, and the derivatives of a function of it with respect to all of its tensors."""
    leaves = [part.detach().requires_grad_() for part in layer]
    value = F.linear(*leaves)
    return [value.detach(), *torch.autograd.grad(value.square().sum(), leaves)]


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_layer_and_its_derivatives_differ_by_rounding_only(layer):
    assert onednn.suits(*layer)
    plain, exact = derivatives(layer), derivatives(tuple(part.double() for part in layer))
    with onednn.Linear():
        found = derivatives(layer)
    assert not found[0].equal(plain[0])
    for ours, theirs, truth in zip(found, plain, exact, strict=True):
        assert ours.shape == theirs.shape
        assert (ours - truth).abs().max() <= 4 * (theirs - truth).abs().max()


@torch.no_grad()
def test_a_written_product_has_the_bits_of_the_product():
    for rows, columns in ((64, 200), (3, 5)):
        x, weight, found = drawn(rows, 784), drawn(columns, 784), torch.full((rows, columns), torch.nan)
        onednn.write_product(x, weight, found)
        assert found.equal(onednn.product(x, weight, None))


def test_only_what_is_asked_for_is_differentiated():
    x, weight, bias = LAYERS["flat"]
    with onednn.Linear():
        value = F.linear(x, weight.clone().requires_grad_(), bias)
        assert value.grad_fn.name() == "LinearLayerBackward"
        assert value.grad_fn.needs_input_grad == (False, True, False)
        assert not F.linear(x, weight, bias).requires_grad


def test_a_derivative_can_be_differentiated():
    """As a penalty on the gradient does."""

    def of_penalty(layer: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        leaves = [part.detach().requires_grad_() for part in layer]
        gradients = torch.autograd.grad(F.linear(*leaves).pow(3).mean(), leaves, create_graph=True)
        return list(torch.autograd.grad(sum(gradient.square().sum() for gradient in gradients), leaves))

    plain = of_penalty(LAYERS["flat"])
    with onednn.Linear():
        found = of_penalty(LAYERS["flat"])
    for ours, theirs in zip(found, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_a_checkpointed_layer_can_be_differentiated(is_reentrant):
    """It is computed again in the backward pass, which is outside the mode."""
    x, weight, bias = (part.clone().requires_grad_() for part in LAYERS["flat"])

    def layer(x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, weight, bias).sigmoid()

    with onednn.Linear():
        plain = torch.autograd.grad(layer(x).square().sum(), (x, weight, bias))
        checkpoint(layer, x, use_reentrant=is_reentrant).square().sum().backward()
    for leaf, theirs in zip((x, weight, bias), plain, strict=True):
        torch.testing.assert_close(leaf.grad, theirs, rtol=1e-3, atol=1e-5 * float(theirs.abs().max()))


def test_a_model_that_diverged_stays_so():
    x, weight, bias = LAYERS["flat"]
    with onednn.Linear():
        found = F.relu(F.linear(x, torch.full_like(weight, torch.nan), bias))
    assert found.isnan().all()


class Subclass(torch.Tensor):
    """A tensor of a user's own kind."""


def test_other_layers_are_left_to_torch():
    x, weight, bias = LAYERS["flat"]
    assert onednn.suits(x, torch.nn.Parameter(weight), torch.nn.Parameter(bias))
    assert not onednn.suits(x[:5], weight[:20])
    assert not onednn.suits(x[:0], weight)
    assert not onednn.suits(drawn(100_000), drawn(20, 100_000))
    assert not onednn.suits(x.double(), weight.double())
    assert not onednn.suits(x, weight, bias.double())
    assert not onednn.suits(x.bfloat16(), weight.bfloat16())
    assert not onednn.suits(x.to(torch.complex64), weight.to(torch.complex64))
    assert not onednn.suits(x.to("meta"), weight.to("meta"))
    assert not onednn.suits(x, weight, drawn(1))
    assert not onednn.suits(x, weight, drawn(1).expand(200))  # oneDNN would read 200 numbers where there is one
    assert not onednn.suits(x, weight, drawn(400)[::2])
    assert not onednn.suits(x, weight[:, :700])
    assert not onednn.suits(x, weight.to_sparse())
    assert not onednn.suits(x.to_mkldnn(), weight)
    assert not onednn.suits(x, weight.as_subclass(Subclass))
    assert not onednn.suits(x.as_subclass(Subclass), weight)
    with torch.autocast("cpu", torch.bfloat16):
        assert not onednn.suits(x, weight)


def test_transforms_of_functions_are_left_to_torch():
    x, weight, bias = LAYERS["flat"]

    def loss(weight: torch.Tensor) -> torch.Tensor:
        assert not onednn.suits(x, weight, bias)
        return F.linear(x, weight, bias).square().mean()

    plain, stack = torch.func.grad(loss)(weight), torch.vmap(loss)(torch.stack([weight, weight]))
    with onednn.Linear():
        assert torch.func.grad(loss)(weight).equal(plain)
        assert torch.vmap(loss)(torch.stack([weight, weight])).equal(stack)


def test_a_compiler_can_trace_a_layer():
    layer = LAYERS["flat"]
    compiled = torch.compile(lambda *layer: F.linear(*layer), backend="eager", fullgraph=True)
    with onednn.Linear():
        torch.testing.assert_close(compiled(*layer), F.linear(*layer), rtol=1e-4, atol=1e-4)


def test_a_wrong_width_is_reported_by_torch():
    x, weight, _ = LAYERS["flat"]
    with onednn.Linear(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        F.linear(x, weight[:, :700])
