"""Linear layers by oneDNN beside the same by torch's own products."""

import pytest
import torch
import torch.nn.functional as F

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


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
@torch.no_grad()
def test_a_layer_differs_by_rounding_only(layer):
    assert onednn.suits(*layer)
    plain, exact = F.linear(*layer), F.linear(*(part.double() for part in layer))
    with onednn.Linear():
        found = F.linear(*layer)
    assert found.shape == exact.shape
    assert (found - exact).abs().max() <= 4 * (plain - exact).abs().max()


def test_layers_with_a_gradient_are_left_to_torch():
    x, weight, bias = LAYERS["flat"]
    assert not onednn.suits(x, weight, bias)
    with onednn.Linear():
        value = F.linear(x, weight.clone().requires_grad_(), bias)
    assert value.grad_fn is not None


@torch.no_grad()
def test_a_model_that_diverged_stays_so():
    x, weight, bias = LAYERS["flat"]
    with onednn.Linear():
        found = F.relu(F.linear(x, torch.full_like(weight, torch.nan), bias))
    assert found.isnan().all()


class Subclass(torch.Tensor):
    """A tensor of a user's own kind."""


@torch.no_grad()
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


@torch.no_grad()
def test_a_compiler_can_trace_a_layer():
    layer = LAYERS["flat"]
    compiled = torch.compile(lambda *layer: F.linear(*layer), backend="eager", fullgraph=True)
    with onednn.Linear():
        torch.testing.assert_close(compiled(*layer), F.linear(*layer), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_wrong_width_is_reported_by_torch():
    x, weight, _ = LAYERS["flat"]
    with onednn.Linear(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        F.linear(x, weight[:, :700])
