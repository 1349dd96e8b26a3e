"""One hidden layer with tanh: a smooth loss, as convergence theorems assume, once model.norm=none."""

from collections import OrderedDict
from math import prod

from torch import nn

from fl_platform.models.layers import Features, norm_layer
from fl_platform.models.registry import Shape, architecture


@architecture(
    "tanh_mlp",
    "one hidden layer of 32 with tanh, smooth with model.norm=none; 2,410 parameters on digits",
    takes=("images", "numbers"),
)
def tanh_mlp(shape: Shape, num_classes: int, *, norm: str, width: int | None) -> nn.Sequential:
    """A perceptron whose derivatives of all orders exist."""
    hidden = 32
    return nn.Sequential(
        OrderedDict(
            hidden=nn.Sequential(
                nn.Flatten(), nn.Linear(prod(shape), hidden), norm_layer(norm, hidden), nn.Tanh(), Features()
            ),
            output=nn.Linear(hidden, num_classes),
        )
    )
