"""ResNet-20, three stages of three basic blocks: the paper's network for Tiny-ImageNet.

The released code cannot build it; the widths 64/128/256 follow its stem, 16/32/64 (``model.width=16``) is the
network of the original CIFAR experiments.
"""

from collections import OrderedDict

from torch import nn

from fl_platform.models.layers import Features, Residual, norm_layer
from fl_platform.models.registry import Shape, architecture


@architecture(
    "resnet20",
    "three stages of three basic blocks; 4,376,584 parameters on Tiny-ImageNet, 284,824 with width 16",
    has_width=True,
)
def resnet20(shape: Shape, num_classes: int, *, norm: str, width: int | None) -> nn.Sequential:
    """ResNet-20, whose first stage has ``width`` channels (64 unless given)."""
    width = width or 64

    def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
        layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        return [layer, norm_layer(norm, outputs)]

    def basic_block(inputs: int, outputs: int, stride: int) -> Residual:
        body = nn.Sequential(*convolution(inputs, outputs, 3, stride), nn.ReLU(), *convolution(outputs, outputs, 3))
        changes = stride != 1 or inputs != outputs
        return Residual(body, nn.Sequential(*convolution(inputs, outputs, 1, stride)) if changes else nn.Identity())

    def stage(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [basic_block(inputs, outputs, stride), *(basic_block(outputs, outputs, 1) for _ in range(2))]

    return nn.Sequential(
        OrderedDict(
            stem=nn.Sequential(*convolution(shape[0], width, 3), nn.ReLU()),
            stage1=nn.Sequential(*stage(width, width, 1)),
            stage2=nn.Sequential(*stage(width, 2 * width, 2)),
            stage3=nn.Sequential(*stage(2 * width, 4 * width, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), Features()),
            output=nn.Linear(4 * width, num_classes),
        )
    )
