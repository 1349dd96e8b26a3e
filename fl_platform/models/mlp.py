"""Two hidden layers of 200 and 100: the paper's network for MNIST (it says three linear layers)."""

from collections import OrderedDict
from math import prod

from torch import nn

from fl_platform.models.layers import Features, norm_layer
from fl_platform.models.registry import Shape, architecture


@architecture("mlp", "784-200-100-10 with BatchNorm; 178,710 parameters on MNIST", takes=("images", "numbers"))
def mlp(shape: Shape, num_classes: int, *, norm: str, width: int | None) -> nn.Sequential:
    """The perceptron of the MNIST experiments: 200 and 100 hidden units."""

    def hidden(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, outputs), norm_layer(norm, outputs), nn.ReLU()]

    return nn.Sequential(
        OrderedDict(
            hidden1=nn.Sequential(nn.Flatten(), *hidden(prod(shape), 200)),
            hidden2=nn.Sequential(*hidden(200, 100), Features()),
            output=nn.Linear(100, num_classes),
        )
    )
