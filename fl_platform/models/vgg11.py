"""VGG-11 with a small head: the paper's network for CIFAR-100."""

from collections import OrderedDict

from torch import nn

from fl_platform.errors import UserError
from fl_platform.models.layers import Dropout, Features, MaxPool2d, norm_layer
from fl_platform.models.registry import Shape, architecture

GROUPS = ((64,), (128,), (256, 256), (512, 512), (512, 512))


@architecture("vgg11", "eight 3x3 convolutions in five groups, two linear layers; 9,304,548 parameters on CIFAR-100")
def vgg11(shape: Shape, num_classes: int, *, norm: str, width: int | None) -> nn.Sequential:
    """VGG-11 with a normalisation after each convolution; UserError for images below 32x32 pixels."""
    channels, height, side = shape
    if min(height, side) < 32:
        raise UserError(f"model.name=vgg11 needs images of at least 32x32 pixels, not {height}x{side}")
    blocks: OrderedDict[str, nn.Module] = OrderedDict()
    for number, group in enumerate(GROUPS, 1):
        layers: list[nn.Module] = []
        for outputs in group:
            layers += [nn.Conv2d(channels, outputs, 3, padding=1), norm_layer(norm, outputs), nn.ReLU()]
            channels = outputs
        # ReLU of the maxima is the maximum of the ReLUs, gradients included, at a quarter of the work
        blocks[f"group{number}"] = nn.Sequential(*layers[:-1], MaxPool2d(2), layers[-1])
    blocks["group5"] = nn.Sequential(*blocks["group5"], nn.Flatten())  # type: ignore[misc]
    flat = channels * (height // 32) * (side // 32)
    blocks["hidden"] = nn.Sequential(nn.Linear(flat, 128), nn.ReLU(), Features(), Dropout())
    blocks["output"] = nn.Linear(128, num_classes)
    return nn.Sequential(blocks)
