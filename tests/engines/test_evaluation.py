"""Forward passes of an evaluation: how many samples they take, and what is summed over them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fl_platform.engines.evaluation import (
    ACTIVATIONS,
    FEW_CLASSES,
    PIXELS,
    WEIGHTS,
    batch_of,
    logits_of,
    summed_loss,
)
from fl_platform.models import registry
from fl_platform.models.layers import Pass
from fl_platform.models.network import Network


def network(name: str, shape: tuple[int, ...]) -> Network:
    return Network(registry.build(name, shape, 10, norm="batch", generator=torch.Generator().manual_seed(0)))


def passes(network: Network, inputs: torch.Tensor) -> int:
    return batch_of(network, network.parameters.views(network.initial_params), network.initial_buffers, inputs)


@pytest.mark.parametrize(
    ("name", "shape", "widest", "size"),
    [
        ("mlp", (1, 28, 28), 784, 1000),
        ("lenet5", (1, 28, 28), 32 * 24 * 24, 86),
        ("lenet5", (3, 32, 32), 32 * 28 * 28, 63),
        ("vgg11", (3, 32, 32), 64 * 32 * 32, 129),
        ("resnet20", (3, 64, 64), 64 * 64 * 64, 60),
    ],
)
def test_a_pass_is_as_long_as_its_input_and_its_largest_activation_allow(name, shape, widest, size):
    one, images = network(name, shape), torch.zeros(1, *shape).expand(10_000, *shape)
    assert passes(one, images) == size
    assert one.widest([], one.initial_buffers, images) == widest  # known by now
    assert size * images[0].numel() <= PIXELS
    assert size <= max(50, one.parameters.dim // WEIGHTS) or size * widest * 4 <= ACTIVATIONS


def test_numbers_of_bfloat16_take_half_the_memory():
    module = registry.build("lenet5", (3, 32, 32), 10, norm="batch", generator=torch.Generator().manual_seed(0))
    assert passes(Network(module, autocast=torch.bfloat16), torch.zeros(1, 3, 32, 32).expand(10_000, 3, 32, 32)) == 127


def test_a_models_own_weights_are_no_activations():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(5000, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, F.normalize(self.weight))[:, :3]

    one = Network(Scaled())
    assert passes(one, torch.zeros(2_000, 4)) == 286
    assert passes(one, torch.zeros(1, 4)) == 1
    assert passes(one, torch.zeros(0, 4)) == 320


@pytest.mark.parametrize("name", ["mlp", "lenet5"])
def test_logits_are_those_of_the_plain_layers(name):
    one = network(name, (3, 32, 32))
    weights, x = one.parameters.views(one.initial_params), torch.randn(6, 3, 32, 32)
    found = logits_of(one, weights, one.initial_buffers, x)
    assert not found.requires_grad
    torch.testing.assert_close(found, one.single(weights, one.initial_buffers, x, Pass(train=False)).logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [2, 10, FEW_CLASSES - 1, FEW_CLASSES, 62])
def test_the_loss_is_the_sum_of_cross_entropies(classes, dtype):
    draw = torch.Generator().manual_seed(classes)
    logits = 5 * torch.randn(1_000, classes, generator=draw, dtype=dtype)
    labels = torch.randint(0, classes, (1_000,), generator=draw)
    expected = F.cross_entropy(logits.double(), labels, reduction="sum")
    torch.testing.assert_close(summed_loss(logits, labels).double(), expected, rtol=1e-6, atol=0)
    logits[3] = torch.nan
    assert summed_loss(logits, labels).isnan()
    assert summed_loss(logits[:0], labels[:0]) == 0
