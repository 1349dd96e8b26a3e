"""A trained network that takes raw images: the data set's normalisation in front of it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


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
        means, stds = (torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (mean, std))
        self.register_buffer("scale", (1 / (255 * stds)).to(dtype))
        self.register_buffer("shift", (-means / stds).to(dtype))

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.to(self.scale.dtype)
        if images.dtype != torch.uint8:
            pixels = pixels * 255
        logits: Tensor = self.network(pixels * self.scale + self.shift)
        return logits
