"""Labelled images in memory, and stratified hold-out."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class ImageSet:
    """Raw images (uint8 [n, C, H, W]) and their classes (int64 [n])."""

    images: Tensor
    labels: Tensor

    @staticmethod
    def from_arrays(images: NDArray[np.uint8], labels: NDArray[np.integer]) -> "ImageSet":
        """Wrap NumPy arrays; the images share memory with the array."""
        return ImageSet(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: NDArray[np.int64]) -> "ImageSet":
        """A copy of the samples at ``indices``, in that order."""
        chosen = torch.from_numpy(indices)
        return ImageSet(self.images[chosen], self.labels[chosen])

    def fault(self, shape: tuple[int, int, int], num_classes: int) -> str | None:
        """Describe how the images differ from this shape and number of classes; None if they agree."""
        found = tuple(self.images.shape[1:])
        if self.images.dtype != torch.uint8 or found != shape:
            return f"images are {self.images.dtype} of shape {found}, expected torch.uint8 of shape {shape}"
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            found = tuple(self.labels.shape)
            return f"labels are {self.labels.dtype} of shape {found}, expected torch.int64, one for each image"
        if len(self) == 0:
            return "there is no image"
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= num_classes:
            return f"label {low if low < 0 else high} is outside 0..{num_classes - 1}"
        return None


def hold_out(
    labels: NDArray[np.int64], count: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Hold out ``count`` samples, each class in proportion to its size; returns ascending indices (kept, held out)."""
    sizes = np.bincount(labels)
    exact = sizes * count / max(len(labels), 1)
    shares = np.floor(exact).astype(np.int64)
    largest_remainders = np.argsort(shares - exact, kind="stable")[: count - int(shares.sum())]
    shares[largest_remainders] += 1
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # by class, shuffled within
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_held = rank < np.repeat(shares, sizes)
    return np.sort(order[~is_held]), np.sort(order[is_held])
