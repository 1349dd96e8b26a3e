"""LeNet-5 as the authors widened it: the paper's network for CIFAR-10."""

from collections import OrderedDict

from torch import nn

from fl_platform.errors import UserError
from fl_platform.models.layers import Dropout, Features, MaxPool2d, norm_layer
from fl_platform.models.registry import Shape, architecture


@architecture("lenet5", "two 5x5 convolutions, three linear layers, dropout; 941,834 parameters on CIFAR-10")
def lenet5(shape: Shape, num_classes: int, *, norm: str, width: int | None) -> nn.Sequential:
    """LeNet-5 with a normalisation after each layer; UserError for images below 16x16 pixels."""
    channels, height, side = shape
    if min(height, side) < 16:
        raise UserError(f"model.name=lenet5 needs images of at least 16x16 pixels, not {height}x{side}")

    def convolution(inputs: int, outputs: int) -> list[nn.Module]:
        # ReLU of the maxima is the maximum of the ReLUs, gradients included, at a quarter of the work
        return [nn.Conv2d(inputs, outputs, 5), norm_layer(norm, outputs), MaxPool2d(2)]

    def linear(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, outputs), norm_layer(norm, outputs), nn.ReLU()]

    def left(pixels: int) -> int:
        return ((pixels - 4) // 2 - 4) // 2

    flat = 64 * left(height) * left(side)
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Sequential(*convolution(channels, 32), nn.ReLU()),
            conv2=nn.Sequential(*convolution(32, 64), nn.Flatten(), nn.ReLU()),  # ReLU of numbers in one layout
            hidden1=nn.Sequential(*linear(flat, 512), Dropout()),
            hidden2=nn.Sequential(*linear(512, 128), Features(), Dropout()),
            output=nn.Linear(128, num_classes),
        )
    )
