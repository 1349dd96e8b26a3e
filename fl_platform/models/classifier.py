"""A trained network that takes raw images: the data set's normalisation in front of it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def scale_and_shift(mean: Sequence[float], std: Sequence[float], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return [C, 1, 1] tensors so that ``pixels * scale + shift`` normalises pixels in 0..255."""
    means, stds = (torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (mean, std))
    return (1 / (255 * stds)).to(dtype), (-means / stds).to(dtype)


def normalised(images: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Return raw images, uint8 in 0..255 or floating point in [0, 1], as the network takes them."""
    pixels = images.to(scale.dtype)
    if images.dtype != torch.uint8:
        pixels = pixels * 255
    return pixels * scale + shift


class Classifier(nn.Module):
    """Logits [B, K] of raw images [B, C, H, W].

    Images of dtype uint8 are in 0..255; images of a floating dtype are in [0, 1], as torchvision's ``ToTensor`` gives
    them. Both are normalised with the data set's mean and standard deviation, so they must not be normalised before.
    ``network`` is the trained module, which takes normalised images.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float], dtype: torch.dtype) -> None:
        super().__init__()
        self.network = network
        scale, shift = scale_and_shift(mean, std, dtype)
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(normalised(images, self.scale, self.shift))
        return logits
