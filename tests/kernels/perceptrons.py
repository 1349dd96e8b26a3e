"""Networks that are compiled as perceptrons, and batches for them."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from fl_platform.kernels.perceptron import Perceptron
from fl_platform.models import registry
from fl_platform.models.layers import BatchNorm
from fl_platform.models.network import Network

UNIT = 2.0**-24  # float32's unit round-off


def perceptron(network: Network) -> Perceptron | None:
    return Perceptron.of(network, torch.float32)


def mlp(norm: str, side: int = 6, classes: int = 4, width: int | None = None) -> Network:
    generator = torch.Generator().manual_seed(3)
    return Network(registry.build("mlp", (1, side, 5), classes, norm=norm, generator=generator, width=width))


def chain(*widths: int, is_normed: bool = False) -> Network:
    """Linear layers of these widths, with ReLU and BatchNorm between them."""
    torch.manual_seed(7)
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), *([BatchNorm(outputs)] if is_normed else []), nn.ReLU()]
    return Network(nn.Sequential(*layers[:-1], *([nn.Linear(widths[-1], widths[-1])] if is_normed else [])))


def drawn(network: Network, samples: int) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters, a batch and its labels."""
    draw, kernel = torch.Generator().manual_seed(5), perceptron(network)
    assert kernel is not None
    flat = network.initial_params + 0.1 * torch.randn(network.parameters.dim, generator=draw)
    x = torch.randn(samples, kernel.chain.inputs, generator=draw)
    return flat, x, torch.randint(0, kernel.chain.classes, (samples,), generator=draw)


NETWORKS = {
    "mlp": mlp("none"),
    "mlp with BatchNorm": mlp("batch"),
    "MNIST": mlp("none", side=157, classes=10),
    "one layer": chain(5, 3),
    "one number": chain(1, 1, 2),
    "edges of tiles": chain(17, 33, 113, 5),
    "edges and BatchNorm": chain(16, 127, 48, is_normed=True),
    "long sums": chain(2100, 9, 300, 2),
    "many outputs": chain(9, 700, 62),
}
