"""Data sets of random bytes and a network of any size: a plugin, so that child processes have them too.

python -m fl_platform run plugins=[benchmarks.synthetic] data.name=random_mnist
"""

import numpy as np
from torch import Tensor, nn

from fl_platform.data import datasets
from fl_platform.data.datasets import Dataset
from fl_platform.data.image_set import ImageSet
from fl_platform.seeding import generator

PLUGIN = "plugins=[benchmarks.synthetic]"
MILLION_SAMPLES = 2_000_000


class Wide(nn.Module):
    """16 inputs, one hidden layer, 10 outputs: 27 width + 10 parameters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


def width_for(dimension: int) -> int:
    """The width of ``Wide`` that comes closest to a number of parameters."""
    return max(1, round((dimension - 10) / 27))


def random_images(name: str, train: int, test: int, shape: tuple[int, int, int]) -> Dataset:
    def part(stream: str, count: int) -> ImageSet:
        rng = generator(0, "bench", name, stream)
        return ImageSet.from_arrays(rng.integers(0, 256, (count, *shape), np.uint8), rng.integers(0, 10, count))

    return Dataset(
        name=name,
        description=f"{train:,} and {test:,} random images of shape {shape}, for benchmarks",
        num_classes=10,
        shape=shape,
        mean=(0.5,) * shape[0],
        std=(0.29,) * shape[0],
        load=lambda folder: (part("train", train), part("test", test)),
    )


for _dataset in (
    random_images("random_mnist", 60_000, 10_000, (1, 28, 28)),
    random_images("random_cifar10", 50_000, 10_000, (3, 32, 32)),
    random_images("random_cifar10_small", 5_000, 1_000, (3, 32, 32)),
    random_images("random_million", MILLION_SAMPLES, 1_000, (1, 4, 4)),
    random_images("random_small", 20_000, 1_000, (1, 4, 4)),
):
    if _dataset.name not in datasets.names():
        datasets.register(_dataset)
