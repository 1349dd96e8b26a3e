"""The gradient of a chain of linear layers, ReLU and BatchNorm written out, for one worker; SGD steps along it; logits.

Its plain twins are autograd (``StackedObjective.gradient``) and the loop over local steps (``LocalTraining``), whose
bits it has. Autograd's nodes, the copies of its results and nn.Module's calls cost as much as a third of the products
of a small perceptron; here the same operations write straight into the flat gradient.

Gain (``python -m benchmarks.kernels``, W1, one thread, CPU time of rounds with and without in turn): ``gradient`` 15 %
of a round of GradMA (128 ms for 150, with MKL's products; since then one run at a load of 10: 142 for 246, which an
idle machine has to confirm), ``descend`` 13 % of a round of FedAvg (57 ms for 65, the same load) over steps one by one
with ``gradient``. ``logits``, whose plain twin is an evaluation layer by layer, 1.5 ms of an evaluation of 19 on W1,
2 with BatchNorm. TorchScript, which runs these functions without Python in between, is 1 to 3 % of that; it is there
for threads, which then do not wait for Python's lock: five steps on two threads 1.9 ms for 2.4
(``benchmarks/README.md``). PyTorch no longer develops TorchScript; where it is not supported the functions run as the
Python they are.
"""

import sys
import warnings
from collections.abc import Iterator
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fl_platform.kernels.onednn import product, write_product
from fl_platform.models.flat import Vector
from fl_platform.models.layers import BatchNorm, Features
from fl_platform.models.network import Network

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


def write_gradient(
    layers: list[Layer],
    weights: list[Tensor],
    x: Tensor,
    labels: Tensor,
    into: list[Tensor] | None,
    statistics: list[Tensor] | None,
    rate: float,
) -> Tensor:
    """Write the gradient of the mean cross-entropy into ``into``, or take an SGD step along it in ``weights``.

    Returns the loss, updates given statistics. A weight is stepped once nothing reads it any more.
    """
    x = x.flatten(1)
    seen: list[Tensor] = []  # what each layer's gradient is taken at: its input, of a ReLU its output
    batch_means: list[Tensor] = []
    batch_scales: list[Tensor] = []
    for layer in layers:
        if layer.kind == "relu":
            x = x.relu_()
        seen.append(x)
        if layer.kind == "linear":
            x = product(x, weights[layer.weight], weights[layer.bias])
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
        layer, x, above = layers[number], seen[number], gradient
        if layer.kind == "relu":
            gradient = torch.ops.aten.threshold_backward(above, x, 0)
            continue
        weight, bias = weights[layer.weight], weights[layer.bias]
        if layer.kind == "linear":
            if number > 0:
                gradient = product(above, weight.t(), None)
            if into is None:
                weight.add_(product(above.t(), x.t(), None), alpha=-rate)
                bias.add_(torch.sum(above, [0]), alpha=-rate)
            else:
                write_product(above.t(), x.t(), into[layer.weight])
                torch.sum(above, [0], out=into[layer.bias])
        else:
            mean = None if statistics is None else statistics[layer.mean]
            variance = None if statistics is None else statistics[layer.variance]
            batch_mean, batch_scale = batch_means.pop(), batch_scales.pop()
            gradient, weight_gradient, bias_gradient = torch.ops.aten.native_batch_norm_backward(
                above, x, weight, mean, variance, batch_mean, batch_scale, True, layer.eps, [True, True, True]
            )
            if into is None:
                weight.add_(weight_gradient, alpha=-rate)
                bias.add_(bias_gradient, alpha=-rate)
            else:
                into[layer.weight].copy_(weight_gradient)
                into[layer.bias].copy_(bias_gradient)
    return loss  # type: ignore[no-any-return]


class Cut(NamedTuple):
    """How a flat vector is cut into tensors (``Layout`` as TorchScript takes it)."""

    sizes: list[int]
    shapes: list[list[int]]


def views(flat: Tensor, cut: Cut) -> list[Tensor]:
    """One view of the flat vector per tensor."""
    pieces = flat.split_with_sizes(cut.sizes)
    return [piece.view(shape) for piece, shape in zip(pieces, cut.shapes)]  # noqa: B905 - unknown to TorchScript


class Steps(nn.Module):
    """What ``Perceptron`` runs; TorchScript holds the layers and cuts, which a call would have to convert."""

    layers: list[Layer]
    cuts: tuple[Cut, Cut]  # of parameters and buffers

    def __init__(self, layers: list[Layer], cuts: tuple[Cut, Cut]) -> None:
        super().__init__()
        self.layers, self.cuts = layers, cuts

    @torch.jit.export
    def gradient(self, params: Tensor, buffers: Tensor | None, x: Tensor, labels: Tensor, into: Tensor) -> Tensor:
        statistics = None if buffers is None else views(buffers, self.cuts[1])
        return write_gradient(
            self.layers, views(params, self.cuts[0]), x, labels, views(into, self.cuts[0]), statistics, 0.0
        )

    @torch.jit.export
    def descend(
        self, params: Tensor, buffers: Tensor, batches: list[Tensor], labels: list[Tensor], rate: float
    ) -> Tensor:
        weights, statistics = views(params, self.cuts[0]), views(buffers, self.cuts[1])
        losses: list[Tensor] = []
        for x, y in zip(batches, labels):  # noqa: B905 - unknown to TorchScript
            losses.append(write_gradient(self.layers, weights, x, y, None, statistics, rate))
        return torch.stack(losses)

    @torch.jit.export
    def logits(self, params: Tensor, buffers: Tensor, x: Tensor) -> Tensor:
        weights, statistics = views(params, self.cuts[0]), views(buffers, self.cuts[1])
        x = x.flatten(1)
        for layer in self.layers:
            if layer.kind == "relu":
                x = x.relu_()  # the first layer is a linear one, so these are not the samples
            elif layer.kind == "linear":
                x = product(x, weights[layer.weight], weights[layer.bias])
            else:
                weight, bias = weights[layer.weight], weights[layer.bias]
                mean, variance = statistics[layer.mean], statistics[layer.variance]
                x = torch.batch_norm(x, weight, bias, mean, variance, False, 0.0, layer.eps, False)
        return x


_COMPILED: dict[Any, Any] = {}
_COMPILING = Lock()


def scripted(steps: Steps) -> Any:
    """Return the steps compiled by TorchScript, where there is one; equal steps are compiled once per process.

    They hold no tensors, so runs and threads can share them.
    """
    if sys.version_info >= (3, 14):  # which TorchScript does not support
        return steps
    key = repr((steps.layers, steps.cuts))
    with _COMPILING, warnings.catch_warnings():
        if key not in _COMPILED:
            for category in (DeprecationWarning, FutureWarning):  # of torch.jit as a whole: torch 2.13, torch 2.15
                warnings.simplefilter("ignore", category)
            _COMPILED[key] = torch.jit.script(steps)
    return _COMPILED[key]


def in_order(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers as nested Sequentials run them, with their names; a layer that stands twice comes twice."""
    if type(module) is not nn.Sequential:
        yield prefix.rstrip("."), module
        return
    for name, child in module._modules.items():
        assert child is not None
        yield from in_order(child, f"{prefix}{name}.")


class Perceptron:
    """Cross-entropy of a network of linear layers, ReLU and BatchNorm, as a function of its flat parameters."""

    def __init__(self, layers: list[Layer], network: Network) -> None:
        cuts = [Cut(cut.sizes, [list(shape) for shape in cut.shapes]) for cut in (network.parameters, network.buffers)]
        self.steps = Steps(layers, (cuts[0], cuts[1]))

    @cached_property
    def compiled(self) -> Any:
        """The steps as they are run; compiled when the first is taken, for not every engine and method takes one."""
        return scripted(self.steps)

    @staticmethod
    def of(network: Network) -> "Perceptron | None":
        """The network as a perceptron; None for any other network, and where layers compute in fewer digits."""
        if type(network.module) is not nn.Sequential or network.autocast is not None:
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
        return Perceptron(layers, network) if is_chain else None

    def gradient(self, params: Vector, buffers: Vector | None, x: Tensor, labels: Tensor, into: Vector) -> Tensor:
        """Write the gradient of a batch's mean loss in training mode; returns the loss.

        Running statistics, if given, are updated.
        """
        with torch.inference_mode():  # a microsecond per operation less than no_grad
            loss: Tensor = self.compiled.gradient(params, buffers, x, labels, into)
        return loss

    def descend(
        self, params: Vector, buffers: Vector, batches: list[Tensor], labels: list[Tensor], rate: float
    ) -> Tensor:
        """Take a step of SGD per batch, writing parameters and running statistics in place; returns the losses."""
        with torch.inference_mode():
            losses: Tensor = self.compiled.descend(params, buffers, batches, labels, rate)
        return losses

    def logits(self, params: Vector, buffers: Vector, x: Tensor) -> Tensor:
        """The network's outputs in evaluation mode."""
        with torch.inference_mode():
            found: Tensor = self.compiled.logits(params, buffers, x)
        return found
