"""Linear layers by oneDNN beside the same by torch's own products."""

import pytest
import torch
import torch.nn.functional as F

from fl_platform.kernels import onednn

pytestmark = pytest.mark.skipif(not onednn.IS_AVAILABLE, reason="torch has no oneDNN here")


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


@pytest.mark.parametrize("samples", [1, 2, 7, 8, 31, 64, 100, onednn.SHORT, onednn.SHORT + 1, 300])
def test_a_weights_gradient_has_the_bits_of_a_product(samples):
    gradient, x, found = drawn(samples, 200), drawn(samples, 784), torch.full((200, 784), torch.nan)
    onednn.write_weight_gradient(gradient, x, found)
    assert torch.equal(found, torch.mm(gradient.t(), x))


LAYERS = {
    "flat": (drawn(500, 784), drawn(200, 784), drawn(200)),
    "no bias": (drawn(500, 784), drawn(200, 784)),
    "tokens": (drawn(20, 30, 784), drawn(200, 784), drawn(200)),
    "strided input": (drawn(784, 500).t(), drawn(200, 784), drawn(200)),
    "every second sample": (drawn(1000, 784)[::2], drawn(200, 784), drawn(200)),
    "tied weight": (drawn(500, 784), drawn(784, 200).t(), drawn(200)),
    "one sample repeated": (drawn(1, 784).expand(500, 784), drawn(200, 784), drawn(200)),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
@torch.no_grad()
def test_an_evaluated_linear_layer_differs_by_rounding_only(layer):
    assert onednn.suits(*layer)
    plain, exact = F.linear(*layer), F.linear(*(part.double() for part in layer))
    with onednn.Linear():
        found = F.linear(*layer)
    assert found.shape == plain.shape
    assert (found - exact).abs().max() <= 2 * (plain - exact).abs().max()


@torch.no_grad()
def test_other_layers_are_left_to_torch():
    x, weight = drawn(500, 784), drawn(200, 784)
    assert not onednn.suits(x[:5], weight[:20])
    assert not onednn.suits(x.double(), weight.double())
    assert not onednn.suits(x.to("meta"), weight.to("meta"))
    assert not onednn.suits(x, weight, drawn(1))
    assert not onednn.suits(x, weight.to_sparse())
    with torch.autocast("cpu", torch.bfloat16):
        assert not onednn.suits(x, weight)
    with torch.enable_grad():  # a model that differentiates something in its forward pass
        assert not onednn.suits(x, weight)


@pytest.mark.parametrize(
    "bias",
    [torch.randn(128)[::2], torch.randn(1).expand(64), torch.randn(64, 3)[:, 1]],
    ids=["every second", "one for all", "a column"],
)
def test_a_bias_that_is_not_contiguous_is_left_to_torch(bias):
    x, weight = torch.randn(4, 64, 8, 128), torch.randn(64, 128)
    assert x.numel() * len(weight) >= onednn.WORTH_IT
    with torch.no_grad(), onednn.Linear():
        found = F.linear(x, weight, bias)
    torch.testing.assert_close(found, x @ weight.T + bias, rtol=1e-4, atol=1e-4)
