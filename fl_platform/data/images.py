"""An image set on a device: batches by index, normalised, and for training randomly cropped and flipped."""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from fl_platform import noise
from fl_platform.data.datasets import Dataset
from fl_platform.data.image_set import ImageSet

_TOP, _LEFT, _FLIP = range(3)  # streams of noise

Allocate = Callable[..., Tensor]
"""Returns a tensor to write into: ``torch.empty``, or a function of the same signature that reuses a buffer."""


class Images:
    """Images stored as uint8 and normalised per batch."""

    def __init__(self, image_set: ImageSet, dataset: Dataset, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.all_labels = image_set.labels.to(device)
        self._images = image_set.images.to(device)
        self._crop_padding = dataset.crop_padding
        self._flip = dataset.flip
        mean = torch.tensor(dataset.mean, dtype=torch.float64).view(-1, 1, 1)
        std = torch.tensor(dataset.std, dtype=torch.float64).view(-1, 1, 1)
        self._scale = (1 / (255 * std)).to(device, dtype)
        self._shift = (-mean / std).to(device, dtype)

    def __len__(self) -> int:
        return len(self.all_labels)

    @property
    def are_augmented(self) -> bool:
        """Whether training batches are cropped or flipped."""
        return bool(self._crop_padding or self._flip)

    def labels(self, indices: Tensor) -> Tensor:
        """The classes of the samples at ``indices``, in the same shape."""
        return self.all_labels.take(indices)

    def batch(self, indices: Tensor, augment_keys: Tensor | None = None, allocate: Allocate = torch.empty) -> Tensor:
        """Normalised images [..., B, C, H, W] for indices [..., B], written into a tensor from ``allocate``.

        ``augment_keys`` [...] adds one random crop and flip per sample, if the data set has any. Sample b of a
        batch depends only on its key and b, so neither padding nor the order of workers changes it.
        """
        pixels = self._images.index_select(0, indices.flatten())
        if augment_keys is not None and self.are_augmented:
            pixels = self._augment(pixels, augment_keys, indices.shape[-1])
        return self._normalise(pixels, allocate).view(*indices.shape, *pixels.shape[1:])

    def whole(self) -> Tensor:
        """All images, normalised, computed once; on a CPU channels last, which is fastest for its convolutions."""
        return self._whole

    @cached_property
    def _whole(self) -> Tensor:
        layout = torch.channels_last if self.device.type == "cpu" else torch.contiguous_format
        return self._normalise(self._images, torch.empty).contiguous(memory_format=layout)

    def _normalise(self, pixels: Tensor, allocate: Allocate) -> Tensor:
        values = allocate(pixels.shape, dtype=self._scale.dtype, device=self.device)
        return values.copy_(pixels).mul_(self._scale).add_(self._shift)

    def _augment(self, pixels: Tensor, keys: Tensor, count: int) -> Tensor:
        """Crop and flip in one gather: each output pixel (y, x) reads (top + y, left + x or its mirror image)."""
        padding = self._crop_padding
        height, width = pixels.shape[-2:]
        rows = _draw(keys, count, 2 * padding + 1, _TOP) + torch.arange(height, device=keys.device)
        columns = torch.arange(width, device=keys.device).expand(len(pixels), -1)
        if self._flip:
            columns = torch.where(_draw(keys, count, 2, _FLIP) == 1, columns.flip(-1), columns)
        columns = _draw(keys, count, 2 * padding + 1, _LEFT) + columns
        places = rows.unsqueeze(-1) * (width + 2 * padding) + columns.unsqueeze(-2)
        padded = pad(pixels, [padding] * 4)  # black before normalising, as in the paper's code
        places = places.view(len(pixels), 1, -1).expand(-1, pixels.shape[1], -1)
        return padded.flatten(2).gather(2, places).view_as(pixels)


def _draw(keys: Tensor, count: int, below: int, stream: int) -> Tensor:
    """One integer in [0, below) per sample, as a column."""
    return noise.integers(keys, count, below, stream).view(-1, 1)
