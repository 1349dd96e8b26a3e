"""Large linear layers and their derivatives, compiled on a CPU. The plain twin is ``F.linear``.

torch's products are MKL's, which runs its AVX2 code on processors of other makers than its own, and rearranges both
factors before it multiplies. The tiles of ``compiled_linear`` multiply rows where they lie; sums are parted elsewhere,
so the two differ by rounding. Perceptrons whose method has no loss of its own are left to ``kernels/perceptron.py``.

Gain (``python -m benchmarks.kernels --only linear``, Zen 5, one thread, CPU time of rounds with and without in turn):
13 % of a round of LeNet-5, 1,638 ms for 1,879; with W1's perceptron 17 % of MOON, 84 ms for 101, and 23 % of FedAvg
with GroupNorm, 80 ms for 104.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fl_platform.kernels.arrays import is_array, is_saved_elsewhere
from fl_platform.models.network import Network

WORTH_IT = 1 << 20
"""Multiplications in a product from which on the call of a function of Python's is made up for."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear, compiled where there is compiled code for it."""
    if torch.compiler.is_compiling() or not suits(x, weight, bias):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and any(part.requires_grad for part in (x, weight, bias) if part is not None):
        found: Tensor = Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return found
    return forward(x, weight, bias)


class Linear(torch.autograd.Function):
    """A linear layer with a gradient, which has one itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return forward(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        if torch.is_grad_enabled() or not torch._C._has_storage(gradient):  # for its own gradient, or many at once
            return torch_backward(gradient, x, weight, ctx.needs_input_grad)
        return backward(gradient, x, weight, ctx.needs_input_grad)


def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b."""
    x, weight, bias = x.contiguous(), weight.contiguous(), None if bias is None else bias.contiguous()
    outputs, inputs = weight.shape
    found = x.new_empty(*x.shape[:-1], outputs)
    places = (x.data_ptr(), weight.data_ptr(), 0 if bias is None else bias.data_ptr(), found.data_ptr())
    compiled("forward")(*places, x.numel() // inputs, inputs, outputs)
    return found


def backward(gradient: Tensor, x: Tensor, weight: Tensor, is_needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """The derivatives by input, weight and bias, those that are needed."""
    gradient, x, weight = gradient.resolve_neg().contiguous(), x.contiguous(), weight.contiguous()
    outputs, inputs = weight.shape
    of_x = torch.empty_like(x) if is_needed[0] else None
    of_weight = torch.empty_like(weight) if is_needed[1] else None
    places = [part.data_ptr() if part is not None else 0 for part in (gradient, x, weight, of_x, of_weight)]
    compiled("backward")(*places, x.numel() // inputs, inputs, outputs)
    return of_x, of_weight, gradient.flatten(0, -2).sum(0) if is_needed[2] else None


def torch_backward(gradient: Tensor, x: Tensor, weight: Tensor, is_needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """``backward`` by torch, which knows the gradient of its own operations and computes many at once."""
    rows = gradient.reshape(-1, len(weight))
    return (
        gradient @ weight if is_needed[0] else None,
        rows.t() @ x.reshape(len(rows), -1) if is_needed[1] else None,
        rows.sum(0) if is_needed[2] else None,
    )


@cache
def compiled(name: str) -> Callable[..., None]:
    """The compiled function."""
    from fl_platform.kernels import machine_code  # which models without such layers do not need

    return machine_code.function("compiled_linear", name)


def compile_linear(network: Network, dtype: torch.dtype) -> None:
    """Compile what a network's layers need for parameters of this type, so that the first round does not."""
    is_float = dtype == torch.float32 and network.autocast is None
    if is_float and has_vectors() and any(isinstance(layer, nn.Linear) for layer in network.module.modules()):
        compiled("forward")
        compiled("backward")


def suits(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Tell whether there is compiled code for this layer; a user's model may hold layers of any kind."""
    return (
        all(is_array(part, (torch.float32,)) and not part.is_meta for part in (x, weight, bias) if part is not None)
        and x.dim() >= 2
        and weight.dim() == 2
        and x.shape[-1] == weight.shape[1]
        and (bias is None or bias.shape == weight.shape[:1])
        and x.numel() * len(weight) >= WORTH_IT
        and not torch.is_autocast_enabled("cpu")
        and not is_saved_elsewhere()
        and has_vectors()
    )


@cache
def has_vectors() -> bool:
    """Tell whether the processor has AVX2 at least; without it torch's own products are better."""
    from fl_platform.kernels import machine_code

    return machine_code.LANES >= 8
