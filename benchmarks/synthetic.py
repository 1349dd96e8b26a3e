"""Data sets of random bytes and a network of any size: a plugin, so that child processes have them too.

python -m fl_platform run plugins=[benchmarks.synthetic] data.name=random_mnist
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset
from fl_platform.seeding import generator

PLUGIN = "plugins=[benchmarks.synthetic]"
MOST_WORKERS = 10_000_000


class Wide(nn.Module):
    """16 inputs, one hidden layer, 10 outputs: 27 width + 10 parameters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class DropoutMlp(nn.Module):
    """W1's perceptron with dropout behind each hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        hidden = (nn.Linear(784, 200), nn.ReLU(), nn.Dropout(0.2), nn.Linear(200, 100), nn.ReLU(), nn.Dropout(0.5))
        self.layers = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(100, 10))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


def width_for(dimension: int) -> int:
    """The width of ``Wide`` that comes closest to a number of parameters."""
    return max(1, round((dimension - 10) / 27))


class RandomImages(Dataset):
    """Random images, for benchmarks."""

    num_classes = 10
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.29,)
    counts: tuple[int, int]
    """Training and test images."""

    def load(self, folder: Path) -> tuple[Samples, Samples]:
        train, test = self.counts
        return self._part("train", train), self._part("test", test)

    def _part(self, stream: str, count: int) -> Samples:
        rng = generator(0, "bench", self.name, stream)
        images = rng.integers(0, 256, (count, *self.shape), np.uint8)
        return Samples.from_arrays(images, rng.integers(0, self.num_classes, count))


class RandomMnist(RandomImages, name="random_mnist"):
    """60,000 and 10,000 random images of MNIST's shape, for benchmarks."""

    shape = (1, 28, 28)
    counts = (60_000, 10_000)


class RandomCifar100(RandomImages, name="random_cifar100"):
    """Random images of CIFAR-100's shape and classes, fewer of them, for benchmarks of local training."""

    num_classes = 100
    shape = (3, 32, 32)
    mean = std = (0.5, 0.5, 0.5)
    counts = (10_000, 100)


class RandomTinyImageNet(RandomImages, name="random_tiny_imagenet"):
    """Random images of Tiny-ImageNet's shape and classes, fewer of them, for benchmarks of local training."""

    num_classes = 200
    shape = (3, 64, 64)
    mean = std = (0.5, 0.5, 0.5)
    counts = (10_000, 100)


class RandomCifar10(RandomImages, name="random_cifar10"):
    """50,000 and 10,000 random images of CIFAR-10's shape, for benchmarks."""

    shape = (3, 32, 32)
    mean, std = (0.5,) * 3, (0.29,) * 3
    counts = (50_000, 10_000)


class RandomCifar10Small(RandomImages, name="random_cifar10_small"):
    """5,000 and 1,000 random images of CIFAR-10's shape, for benchmarks."""

    shape = (3, 32, 32)
    mean, std = (0.5,) * 3, (0.29,) * 3
    counts = (5_000, 1_000)


class RandomMillions(RandomImages, name="random_millions"):
    """Twenty million and 1,000 random images of 4x4 pixels, for benchmarks."""

    shape = (1, 4, 4)
    counts = (2 * MOST_WORKERS, 1_000)


class RandomOwners(RandomImages, name="random_owners"):
    """Thirty million random images of ten million owners, most of whom have few, for benchmarks."""

    shape = (1, 4, 4)
    counts = (3 * MOST_WORKERS, 1_000)
    num_owners = MOST_WORKERS

    def _part(self, stream: str, count: int) -> Samples:
        made = super()._part(stream, count)
        if stream == "test":
            return made
        rng = generator(0, "bench", self.name, "owners")
        further = rng.zipf(2.0, MOST_WORKERS)  # beyond two each; what is too much is cut, what is left goes to the last
        ends = np.minimum(np.cumsum(further), count - 2 * MOST_WORKERS)
        sizes = 2 + np.diff(ends, prepend=0)
        sizes[-1] += count - sizes.sum()
        return Samples(made.features, made.labels, torch.from_numpy(np.repeat(np.arange(MOST_WORKERS), sizes)))


class RandomSmall(RandomImages, name="random_small"):
    """20,000 and 1,000 random images of 4x4 pixels, for benchmarks."""

    shape = (1, 4, 4)
    counts = (20_000, 1_000)
