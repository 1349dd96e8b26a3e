"""A trained network that takes raw features: the data set's normalisation in front of it."""

import torch
from torch import Tensor, nn


def as_inputs(features: Tensor, kind: str, scale: Tensor, shift: Tensor) -> Tensor:
    """Return raw features as the network takes them; ``kind`` is ``features`` of their data set.

    Images are uint8 in 0..255 or floating point in [0, 1], numbers are as the data set has them, and tokens are
    integer ids. ``scale`` and ``shift`` normalise images and numbers.
    """
    if kind == "tokens":
        return features.long()
    values = features.to(scale.dtype)
    if kind == "images" and features.dtype != torch.uint8:
        values = values * 255
    return values * scale + shift


class Classifier(nn.Module):
    """Logits [B, K] of raw features [B, ...].

    Images of dtype uint8 are in 0..255; images of a floating dtype are in [0, 1], as torchvision's ``ToTensor`` gives
    them. Numbers are as the data set has them, token ids of any integer dtype. Images and numbers are normalised with
    the data set's mean and standard deviation, so they must not be normalised before. ``network`` is the trained
    module, which takes normalised features.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, kind: str, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.network, self.kind = network, kind
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.network(as_inputs(features, self.kind, self.scale, self.shift))
        return logits
