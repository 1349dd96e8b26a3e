"""A small convolutional network, registered as ``model.name=small_cnn``."""

from collections import OrderedDict

from torch import nn

from fl_platform.models.layers import Features, norm_layer
from fl_platform.models.registry import Shape, architecture


@architecture("small_cnn", "one 3x3 convolution and one hidden layer")
def small_cnn(shape: Shape, num_classes: int, *, norm: str, width: int | None) -> nn.Sequential:
    """Named blocks; ``Features`` marks the representation that MOON compares."""
    channels, height, side = shape
    flat = 8 * (height // 2) * (side // 2)
    return nn.Sequential(
        OrderedDict(
            conv=nn.Sequential(
                nn.Conv2d(channels, 8, 3, padding=1), norm_layer(norm, 8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
            ),
            hidden=nn.Sequential(nn.Linear(flat, 32), nn.ReLU(), Features()),
            output=nn.Linear(32, num_classes),
        )
    )
