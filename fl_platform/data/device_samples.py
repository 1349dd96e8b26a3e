"""Samples on a device: batches by index, as the network takes them, and for training augmented."""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset

Allocate = Callable[..., Tensor]
"""Returns a tensor to write into: ``torch.empty``, or a function of the same signature that reuses a buffer."""


def channels_last(images: Tensor) -> Tensor:
    """Images pixel by pixel in memory, with strides that say so: those of one channel lie alike in both formats, and
    torch chooses the format of a convolution by the strides."""
    images = images.contiguous(memory_format=torch.channels_last)
    _, channels, height, width = images.shape
    return images.as_strided(images.shape, (height * width, 1, width, 1)) if channels == 1 else images


class DeviceSamples:
    """Samples of one data set on a device.

    Images are stored as uint8 and normalised per batch, numbers are normalised once, and token ids are stored in
    their own integer dtype and widened to int64 per batch.
    """

    def __init__(self, samples: Samples, dataset: Dataset, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.host_labels, self.all_labels = samples.labels, samples.labels.to(device)
        self._dataset, self._kind = dataset, dataset.features
        self._scale, self._shift = (values.to(device, dtype) for values in dataset.scale_and_shift())
        self._features = samples.features.to(device)
        if self._kind == "numbers":
            self._features = self._normalise(self._features, torch.empty)

    def __len__(self) -> int:
        return len(self.all_labels)

    @property
    def dtype(self) -> torch.dtype:
        """Of the inputs of images and numbers, and of the parameters that are trained with them."""
        return self._scale.dtype

    @property
    def are_augmented(self) -> bool:
        """Whether training batches are changed at random, such as cropped or flipped."""
        return self._dataset.is_augmented

    def labels(self, indices: Tensor) -> Tensor:
        """The classes of the samples at ``indices``, in the same shape."""
        return self.all_labels.take(indices)

    def batch(self, indices: Tensor, augment_keys: Tensor | None = None, allocate: Allocate = torch.empty) -> Tensor:
        """Inputs of the network [..., B, ...] for indices [..., B]; those of images are written into ``allocate``'s.

        ``augment_keys`` [...] changes each sample at random, if the data set says how. Sample b of a batch depends
        only on its key and b, so neither padding nor the order of workers changes it.
        """
        features = self._features.index_select(0, indices.flatten())
        if augment_keys is not None and self.are_augmented:
            features = self._dataset.augment(features, augment_keys, indices.shape[-1])
        return self._as_inputs(features, allocate).view(*indices.shape, *features.shape[1:])

    def stored(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Features and labels of all samples, and of images, which are bytes, the factors and terms of ``batch``."""
        is_of_images = self._kind == "images"
        return (self._features, self.all_labels, *((self._scale, self._shift) if is_of_images else (None, None)))

    def whole(self) -> Tensor:
        """All inputs, computed once; images on a CPU channels last, which is fastest for its convolutions."""
        return self._whole

    def some(self, indices: Tensor) -> Tensor:
        """The inputs at ``indices`` [n] as ``whole`` has them, computed for this call."""
        return self._laid_out(self.batch(indices))

    @cached_property
    def _whole(self) -> Tensor:
        return self._laid_out(self._as_inputs(self._features, torch.empty))

    def _laid_out(self, inputs: Tensor) -> Tensor:
        is_fast = self._kind == "images" and self.device.type == "cpu"
        return channels_last(inputs) if is_fast else inputs

    def _as_inputs(self, features: Tensor, allocate: Allocate) -> Tensor:
        if self._kind == "images":
            return self._normalise(features, allocate)
        return features.long() if self._kind == "tokens" else features

    def _normalise(self, features: Tensor, allocate: Allocate) -> Tensor:
        values = allocate(features.shape, dtype=self._scale.dtype, device=self.device)
        return values.copy_(features).mul_(self._scale).add_(self._shift)
