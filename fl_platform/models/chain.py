"""A chain of linear layers, ReLU and BatchNorm written out: the gradient of one worker, and evaluation.

Autograd's nodes, the copies of its results and nn.Module's calls cost as much as a third of the products of a small
perceptron. Here the same kernels, with the same bits, write straight into the flat gradient.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fl_platform.models.layers import BatchNorm, Features
from fl_platform.models.network import Network, Weights

# The overloads themselves: looking them up by their arguments costs as much as a small kernel.
threshold_backward = torch.ops.aten.threshold_backward.default
native_batch_norm_backward = torch.ops.aten.native_batch_norm_backward.default
nll_loss_forward = torch.ops.aten.nll_loss_forward.default
nll_loss_backward = torch.ops.aten.nll_loss_backward.default
log_softmax_backward = torch.ops.aten._log_softmax_backward_data.default
MEAN, NO_LABEL = 1, -100  # of the loss: its reduction, and the label it would leave out

Backward = Callable[[Tensor, Weights], Tensor | None]
"""(gradient of the output, where the parameters' gradients go) -> gradient of the input, if anyone needs it."""


@dataclass(frozen=True)
class Linear:
    weight: int  # places among the network's parameters
    bias: int
    is_first: bool

    def forward(self, x: Tensor, weights: Weights, statistics: Weights | None) -> tuple[Tensor, Backward]:
        weight = weights[self.weight]

        def backward(gradient: Tensor, into: Weights) -> Tensor | None:
            torch.mm(gradient.t(), x, out=into[self.weight])
            torch.sum(gradient, 0, out=into[self.bias])
            return None if self.is_first else torch.mm(gradient, weight)

        return F.linear(x, weight, weights[self.bias]), backward

    def infer(self, x: Tensor, weights: Weights, statistics: Weights) -> Tensor:
        return F.linear(x, weights[self.weight], weights[self.bias])


@dataclass(frozen=True)
class ReLU:
    def forward(self, x: Tensor, weights: Weights, statistics: Weights | None) -> tuple[Tensor, Backward]:
        y = x.relu_()
        return y, lambda gradient, into: threshold_backward(gradient, y, 0)

    def infer(self, x: Tensor, weights: Weights, statistics: Weights) -> Tensor:
        return x.relu_()


@dataclass(frozen=True)
class Norm:
    weight: int
    bias: int
    mean: int  # places among the network's buffers
    variance: int
    layer: BatchNorm

    def forward(self, x: Tensor, weights: Weights, statistics: Weights | None) -> tuple[Tensor, Backward]:
        weight, eps = weights[self.weight], self.layer.eps
        mean, variance = (statistics[self.mean], statistics[self.variance]) if statistics else (None, None)
        y, batch_mean, batch_scale = torch.native_batch_norm(
            x, weight, weights[self.bias], mean, variance, True, self.layer.momentum, eps
        )

        def backward(gradient: Tensor, into: Weights) -> Tensor:
            before, weight_gradient, bias_gradient = native_batch_norm_backward(
                gradient, x, weight, mean, variance, batch_mean, batch_scale, True, eps, [True, True, True]
            )
            into[self.weight].copy_(weight_gradient)
            into[self.bias].copy_(bias_gradient)
            return before  # type: ignore[no-any-return]

        return y, backward

    def infer(self, x: Tensor, weights: Weights, statistics: Weights) -> Tensor:
        mean, variance = statistics[self.mean], statistics[self.variance]
        return F.batch_norm(x, mean, variance, weights[self.weight], weights[self.bias], eps=self.layer.eps)


Layer = Linear | ReLU | Norm


def in_order(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers as nested Sequentials run them, with their names; a layer that stands twice comes twice."""
    if type(module) is not nn.Sequential:
        yield prefix.rstrip("."), module
        return
    for name, child in module._modules.items():
        assert child is not None
        yield from in_order(child, f"{prefix}{name}.")


class Chain:
    """Cross-entropy of a network that is such a chain, with its gradient."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers

    @staticmethod
    def of(network: Network) -> "Chain | None":
        """None for any other network."""
        if type(network.module) is not nn.Sequential:
            return None
        named = list(in_order(network.module))
        with_values = [id(module) for _, module in named if any(True for _ in module.parameters())]
        if len(set(with_values)) < len(with_values):
            return None  # a layer that is used twice has two gradients to add
        parameters, buffers = network.parameters.names.index, network.buffers.names.index
        layers: list[Layer] = []
        for name, module in named:
            if isinstance(module, nn.Linear) and module.bias is not None:
                layers.append(Linear(parameters(f"{name}.weight"), parameters(f"{name}.bias"), is_first=not layers))
            elif type(module) is nn.ReLU:
                layers.append(ReLU())
            elif isinstance(module, BatchNorm):
                layers.append(
                    Norm(
                        weight=parameters(f"{name}.weight"),
                        bias=parameters(f"{name}.bias"),
                        mean=buffers(f"{name}.running_mean"),
                        variance=buffers(f"{name}.running_var"),
                        layer=module,
                    )
                )
            elif not isinstance(module, nn.Flatten | nn.Identity | Features):
                return None
        return Chain(layers) if layers and all(isinstance(end, Linear) for end in (layers[0], layers[-1])) else None

    def logits(self, weights: Weights, statistics: Weights, x: Tensor) -> Tensor:
        """Of a model that is evaluated; outside of autograd."""
        x = x.flatten(1)
        for layer in self._layers:
            x = layer.infer(x, weights, statistics)
        return x

    def gradient(
        self, weights: Weights, x: Tensor, labels: Tensor, into: Weights, statistics: Weights | None
    ) -> Tensor:
        """Write the gradient of a batch's mean loss; returns the loss. Running statistics, if given, are updated."""
        x, backwards = x.flatten(1), []
        for layer in self._layers:
            x, backward = layer.forward(x, weights, statistics)
            backwards.append(backward)
        log_probabilities = torch.log_softmax(x, 1)
        loss, total = nll_loss_forward(log_probabilities, labels, None, MEAN, NO_LABEL)
        gradient: Tensor | None = nll_loss_backward(
            torch.ones_like(loss), log_probabilities, labels, None, MEAN, NO_LABEL, total
        )
        gradient = log_softmax_backward(gradient, log_probabilities, 1, x.dtype)
        for backward in reversed(backwards):
            assert gradient is not None
            gradient = backward(gradient, into)
        return loss  # type: ignore[no-any-return]
