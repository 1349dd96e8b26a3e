"""A chain of linear layers, ReLU and BatchNorm as tables that compiled code reads: a row of integers per layer, and one
of numbers."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

from fl_platform.models.layers import BatchNorm, Features
from fl_platform.models.network import Network

LINEAR, RELU, NORM = 0, 1, 2

KIND, INPUTS, OUTPUTS, WEIGHT, BIAS, MEAN, VARIANCE, PLACE, MOMENTS = range(9)
"""Columns of a layer's row. WEIGHT to VARIANCE are places among the flat parameters and buffers; PLACE and MOMENTS say
how many numbers per sample and per batch lie before the layer's own in the working memory."""
FIELDS = 9

MOMENTUM, EPSILON = 0, 1
RATES = 2


@dataclass
class Chain:
    """The tables of a network's layers, and the working memory that they need."""

    rows: list[list[int]] = field(default_factory=list)
    rates: list[list[float]] = field(default_factory=list)
    places: int = 0  # numbers per sample
    moments: int = 0  # numbers per batch
    widest: int = 0  # outputs of a layer

    @staticmethod
    def of(network: Network) -> "Chain | None":
        """The layers of a network that is such a chain; None for others, and where layers compute in fewer digits."""
        if type(network.module) is not nn.Sequential or network.autocast is not None:
            return None
        named = list(in_order(network.module))
        with_values = [id(module) for _, module in named if any(True for _ in module.parameters())]
        if len(set(with_values)) < len(with_values):
            return None  # a layer that is used twice has two gradients to add
        parameters, buffers = (
            {name: start for name, (start, _) in zip(layout.names, layout.segments, strict=True)}
            for layout in (network.parameters, network.buffers)
        )
        chain = Chain()
        for name, module in named:
            if isinstance(module, nn.Linear) and module.bias is not None and chain.takes(module.in_features):
                chain.add_linear(module, parameters[f"{name}.weight"], parameters[f"{name}.bias"])
            elif isinstance(module, BatchNorm) and chain.rows and chain.takes(module.weight.numel()):
                values = (parameters[f"{name}.weight"], parameters[f"{name}.bias"])
                chain.add_norm(module, *values, buffers[f"{name}.running_mean"], buffers[f"{name}.running_var"])
            elif type(module) is nn.ReLU and chain.rows:
                chain.add_relu()
            elif not isinstance(module, nn.Flatten | nn.Identity | Features):
                return None
        return chain if chain.rows and chain.rows[-1][KIND] == LINEAR else None

    def takes(self, width: int) -> bool:
        """Tell whether a layer of so many inputs can come next."""
        return not self.rows or self.rows[-1][OUTPUTS] == width

    @property
    def inputs(self) -> int:
        return self.rows[0][INPUTS]

    @property
    def classes(self) -> int:
        return self.rows[-1][OUTPUTS]

    def add_linear(self, layer: nn.Linear, weight: int, bias: int) -> None:
        inputs, outputs = layer.in_features, layer.out_features
        self._add([LINEAR, inputs, outputs, weight, bias, 0, 0, self.places, 0], [0.0, 0.0])
        self.places += outputs

    def add_norm(self, layer: BatchNorm, weight: int, bias: int, mean: int, variance: int) -> None:
        width = layer.weight.numel()
        row = [NORM, width, width, weight, bias, mean, variance, self.places, self.moments]
        self._add(row, [layer.momentum, layer.eps])
        self.places += width
        self.moments += 3 * width

    def add_relu(self) -> None:
        """It works in place."""
        below = self.rows[-1]
        self._add([RELU, below[OUTPUTS], below[OUTPUTS], 0, 0, 0, 0, below[PLACE], 0], [0.0, 0.0])

    def _add(self, row: list[int], rates: list[float]) -> None:
        self.rows.append(row)
        self.widest = max(self.widest, row[OUTPUTS])
        self.rates.append(rates)


def in_order(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers as nested Sequentials run them, with their names; a layer that stands twice comes twice."""
    if type(module) is not nn.Sequential:
        yield prefix.rstrip("."), module
        return
    for name, child in module._modules.items():
        assert child is not None
        yield from in_order(child, f"{prefix}{name}.")
