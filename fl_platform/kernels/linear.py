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

from fl_platform.kernels.arrays import dtype_of_products, is_array, is_multiplied, is_saved_elsewhere
from fl_platform.models.network import Network

WORTH_IT = 1 << 20
"""Multiplications in a product from which on the call of a function of Python's is made up for."""
PANEL = 64
"""Rows of weights that all samples are multiplied with before the next ones: they stay in the second cache."""
BLOCK = 112
"""Inputs whose derivatives are computed at once in bfloat16, from the weights of all outputs."""


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
    """x W^T + b, in bfloat16 under autocast."""
    x, weight, bias = x.contiguous(), weight.contiguous(), None if bias is None else bias.contiguous()
    (outputs, inputs), dtype = weight.shape, dtype_of_products()
    found = x.new_empty(*x.shape[:-1], outputs, dtype=dtype)
    factors, samples = (weight.data_ptr(), 0 if bias is None else bias.data_ptr()), x.numel() // inputs
    if dtype == torch.float32:
        compiled("forward", dtype)(x.data_ptr(), *factors, found.data_ptr(), samples, inputs, outputs)
        return found
    is_float, rows = x.dtype == torch.float32, min(outputs, PANEL)
    work = [empty(x.numel() if is_float else 0, dtype), empty(rows * inputs, dtype), empty(samples * rows)]
    compiled("forward", dtype)(
        *(x.data_ptr(), is_float, *factors, found.data_ptr(), samples, inputs, outputs),
        *(part.data_ptr() for part in work),
    )
    return found


def backward(gradient: Tensor, x: Tensor, weight: Tensor, is_needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """The derivatives by input, weight and bias, those that are needed."""
    gradient, x, weight = gradient.resolve_neg().contiguous(), x.contiguous(), weight.contiguous()
    (outputs, inputs), dtype = weight.shape, gradient.dtype
    of_x = torch.empty_like(x) if is_needed[0] else None
    of_weight = torch.empty_like(weight) if is_needed[1] else None
    made, samples = [0 if part is None else part.data_ptr() for part in (of_x, of_weight)], x.numel() // inputs
    given = (gradient.data_ptr(), x.data_ptr(), weight.data_ptr())
    if dtype == torch.float32:
        compiled("backward", dtype)(*given, *made, samples, inputs, outputs)
    else:
        pairs = max((outputs + 1) // 2 * BLOCK, (samples + 1) // 2 * inputs)
        work = [empty((samples + 1) * (outputs + 1), dtype), empty(pairs), empty(samples * BLOCK)]
        places = (*given[:2], x.dtype == torch.float32, given[2], *made, samples, inputs, outputs)
        compiled("backward", dtype)(*places, *(part.data_ptr() for part in work))
    return of_x, of_weight, gradient.flatten(0, -2).sum(0, dtype=torch.float32) if is_needed[2] else None


def torch_backward(gradient: Tensor, x: Tensor, weight: Tensor, is_needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """``backward`` by torch, which knows the gradient of its own operations and computes many at once."""
    rows, given, factors = gradient.reshape(-1, len(weight)), x.to(gradient.dtype), weight.to(gradient.dtype)
    return (
        (gradient @ factors).to(x.dtype) if is_needed[0] else None,
        (rows.t() @ given.reshape(len(rows), -1)).to(weight.dtype) if is_needed[1] else None,
        rows.sum(0).to(weight.dtype) if is_needed[2] else None,
    )


def empty(size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Memory for compiled code to work in."""
    return torch.empty(size, dtype=dtype, device="cpu")


@cache
def compiled(name: str, dtype: torch.dtype) -> Callable[..., None]:
    """The compiled function for products of a type."""
    from fl_platform.kernels import machine_code  # which models without such layers do not need

    return machine_code.function("compiled_linear" if dtype == torch.float32 else "compiled_narrow_linear", name)


def compile_linear(network: Network, dtype: torch.dtype) -> None:
    """Compile what a network's layers need for parameters of this type, so that the first round does not."""
    products = network.autocast or dtype
    has_layers = any(isinstance(layer, nn.Linear) for layer in network.module.modules())
    if dtype == torch.float32 and has_layers and has_code(products):
        compiled("forward", products)
        compiled("backward", products)


def suits(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Tell whether there is compiled code for this layer; a user's model may hold layers of any kind."""
    dtype = dtype_of_products()
    return (
        is_array(x, (torch.float32, dtype))
        and all(is_array(part, (torch.float32,)) for part in (weight, bias) if part is not None)
        and not any(part.is_meta for part in (x, weight, bias) if part is not None)
        and x.dim() >= 2
        and weight.dim() == 2
        and x.shape[-1] == weight.shape[1]
        and (bias is None or bias.shape == weight.shape[:1])
        and x.numel() * len(weight) >= WORTH_IT
        and not is_saved_elsewhere()
        and has_code(dtype)
    )


@cache
def has_code(dtype: torch.dtype) -> bool:
    """Tell whether there is code for products of this type: with vectors of AVX2 at least, without which torch's own
    are better."""
    return has_vectors() if dtype == torch.float32 else is_multiplied(dtype)


@cache
def has_vectors() -> bool:
    """Tell whether the processor has AVX2 at least."""
    from fl_platform.kernels import machine_code

    return machine_code.LANES >= 8
