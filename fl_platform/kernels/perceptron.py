"""A chain of linear layers, ReLU and BatchNorm written out: the gradient of one worker, and evaluation.

Autograd's nodes, the copies of its results and nn.Module's calls cost as much as a third of the products of a small
perceptron. Here the same kernels, with the same bits, write straight into the flat gradient. TorchScript calls them
one after another without Python in between and without its lock, so that workers on threads do not wait for each other.
PyTorch no longer develops TorchScript; the functions it runs are Python, and run as that where it is not supported.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple, ParamSpec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fl_platform.models.flat import Vector
from fl_platform.models.layers import BatchNorm, Features
from fl_platform.models.network import Network, Weights

Arguments = ParamSpec("Arguments")

NOWHERE = -1


class Layer(NamedTuple):
    """What a layer is, and the places of its tensors among the network's parameters and buffers."""

    kind: str  # linear | relu | norm
    weight: int = NOWHERE
    bias: int = NOWHERE
    mean: int = NOWHERE
    variance: int = NOWHERE
    momentum: float = 0.0
    eps: float = 0.0


def logits_of(layers: list[Layer], weights: list[Tensor], statistics: list[Tensor], x: Tensor) -> Tensor:
    """What ``Chain.logits`` runs."""
    x = x.flatten(1)
    for layer in layers:
        if layer.kind == "linear":
            x = F.linear(x, weights[layer.weight], weights[layer.bias])
        elif layer.kind == "relu":
            x = x.relu_()
        else:
            mean, variance = statistics[layer.mean], statistics[layer.variance]
            weight, bias = weights[layer.weight], weights[layer.bias]
            x = torch.batch_norm(x, weight, bias, mean, variance, False, 0.0, layer.eps, False)
    return x


def write_gradient(
    layers: list[Layer],
    weights: list[Tensor],
    x: Tensor,
    labels: Tensor,
    into: list[Tensor],
    statistics: list[Tensor] | None,
) -> Tensor:
    """What ``Chain.gradient`` runs."""
    x = x.flatten(1)
    seen: list[Tensor] = []  # what each layer's gradient is taken at: its input, of a ReLU its output
    batch_means: list[Tensor] = []
    batch_scales: list[Tensor] = []
    for layer in layers:
        if layer.kind == "relu":
            x = x.relu_()
        seen.append(x)
        if layer.kind == "linear":
            x = F.linear(x, weights[layer.weight], weights[layer.bias])
        elif layer.kind == "norm":
            mean = None if statistics is None else statistics[layer.mean]
            variance = None if statistics is None else statistics[layer.variance]
            weight, bias = weights[layer.weight], weights[layer.bias]
            x, batch_mean, batch_scale = torch.native_batch_norm(
                x, weight, bias, mean, variance, True, layer.momentum, layer.eps
            )
            batch_means.append(batch_mean)
            batch_scales.append(batch_scale)

    log_probabilities = torch.log_softmax(x, 1)
    # the mean over samples (1), whatever their label (-100 would leave one out)
    loss, total = torch.ops.aten.nll_loss_forward(log_probabilities, labels, None, 1, -100)
    gradient = torch.ops.aten.nll_loss_backward(torch.ones_like(loss), log_probabilities, labels, None, 1, -100, total)
    gradient = torch.ops.aten._log_softmax_backward_data(gradient, log_probabilities, 1, x.dtype)

    for number in range(len(layers) - 1, -1, -1):
        layer, x = layers[number], seen[number]
        if layer.kind == "linear":
            torch.mm(gradient.t(), x, out=into[layer.weight])
            torch.sum(gradient, [0], out=into[layer.bias])
            if number > 0:
                gradient = torch.mm(gradient, weights[layer.weight])
        elif layer.kind == "relu":
            gradient = torch.ops.aten.threshold_backward(gradient, x, 0)
        else:
            mean = None if statistics is None else statistics[layer.mean]
            variance = None if statistics is None else statistics[layer.variance]
            weight, batch_mean, batch_scale = weights[layer.weight], batch_means.pop(), batch_scales.pop()
            gradient, weight_gradient, bias_gradient = torch.ops.aten.native_batch_norm_backward(
                gradient, x, weight, mean, variance, batch_mean, batch_scale, True, layer.eps, [True, True, True]
            )
            into[layer.weight].copy_(weight_gradient)
            into[layer.bias].copy_(bias_gradient)
    return loss  # type: ignore[no-any-return]


def write_descent(
    layers: list[Layer],
    params: Tensor,
    weights: list[Tensor],
    batches: list[Tensor],
    labels: list[Tensor],
    gradient: Tensor,
    into: list[Tensor],
    statistics: list[Tensor],
    rate: float,
) -> Tensor:
    """What ``Chain.descend`` runs; ``weights`` and ``into`` are views of ``params`` and ``gradient``."""
    losses: list[Tensor] = []
    for x, y in zip(batches, labels):  # noqa: B905 - TorchScript knows no strict
        losses.append(write_gradient(layers, weights, x, y, into, statistics))
        params.add_(gradient, alpha=-rate)
    return torch.stack(losses)


def scripted(function: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """The function run by TorchScript, where there is one."""
    if sys.version_info >= (3, 14):  # which TorchScript does not support
        return function
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(function)


scripted_logits, scripted_gradient = scripted(logits_of), scripted(write_gradient)
scripted_descent = scripted(write_descent)


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

    def __init__(self, layers: list[Layer]) -> None:
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
                layers.append(Layer("linear", parameters(f"{name}.weight"), parameters(f"{name}.bias")))
            elif type(module) is nn.ReLU:
                layers.append(Layer("relu"))
            elif isinstance(module, BatchNorm):
                layers.append(
                    Layer(
                        "norm",
                        weight=parameters(f"{name}.weight"),
                        bias=parameters(f"{name}.bias"),
                        mean=buffers(f"{name}.running_mean"),
                        variance=buffers(f"{name}.running_var"),
                        momentum=module.momentum,
                        eps=module.eps,
                    )
                )
            elif not isinstance(module, nn.Flatten | nn.Identity | Features):
                return None
        is_chain = layers and layers[0].kind == layers[-1].kind == "linear"
        return Chain(layers) if is_chain else None

    def logits(self, weights: Weights, statistics: Weights, x: Tensor) -> Tensor:
        """Of a model that is evaluated; outside of autograd."""
        with torch.inference_mode():
            return scripted_logits(self._layers, weights, statistics, x)

    def gradient(
        self, weights: Weights, x: Tensor, labels: Tensor, into: Weights, statistics: Weights | None
    ) -> Tensor:
        """Write the gradient of a batch's mean loss; returns the loss. Running statistics, if given, are updated."""
        with torch.inference_mode():  # a microsecond a kernel less than no_grad
            return scripted_gradient(self._layers, weights, x, labels, into, statistics)

    def descend(
        self,
        params: Vector,
        weights: Weights,
        batches: list[Tensor],
        labels: list[Tensor],
        gradient: Vector,
        into: Weights,
        statistics: Weights,
        rate: float,
    ) -> Tensor:
        """A step of SGD a batch, in place, with ``gradient`` as scratch and both vectors' views; returns the losses."""
        with torch.inference_mode():
            return scripted_descent(self._layers, params, weights, batches, labels, gradient, into, statistics, rate)
