"""Dropout and its gradient, compiled on a CPU. The plain twin is ``models.layers.dropped``.

torch hashes positions, compares, multiplies and divides in some twenty passes over memory, and takes two on the way
back. The compiled one takes one each, and keeps a byte for each number. All results have the same bits.

Gain (``python -m benchmarks.kernels --only dropout``, AMD EPYC under changing load, one thread, CPU time of rounds with
and without in turn): 18 % of a round of a perceptron with dropout, 61 ms for 75, and 4 % of one of W2 in bf16-mixed,
734 for 765. W2's local steps alone, the same ones in turn: 5 % in float32, 366 ms for 385, and 7 % in bf16-mixed, 266
for 285. 64 rows of 512 take 17 and 17 us for 147 and 37.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fl_platform import noise
from fl_platform.kernels.arrays import is_array, is_saved_elsewhere
from fl_platform.models.layers import Dropout, dropped, kept_share
from fl_platform.models.network import Network

DTYPES = (torch.float32, torch.bfloat16)
MOST = (1 << 31) - 1
"""Positions that ``noise`` tells apart."""


def dropout(x: Tensor, key: Tensor, probability: float, stream: int, shape: Sequence[int]) -> Tensor:
    """``dropped``, compiled where there is compiled code for it."""
    if torch.compiler.is_compiling() or not suits(x, key, shape):
        return dropped(x, key, probability, stream, shape)
    if torch.is_grad_enabled() and x.requires_grad:
        found: Tensor = Dropped.apply(x, key, probability, stream)  # type: ignore[no-untyped-call]
        return found
    return forward(x, key, probability, stream, None)


class Dropped(torch.autograd.Function):
    """Dropout with a gradient, which has one itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, key: Tensor, probability: float, stream: int) -> Tensor:
        keep = torch.empty_like(x, dtype=torch.bool)
        ctx.save_for_backward(keep)
        ctx.share = kept_share(probability)
        return forward(x, key, probability, stream, keep)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        [keep] = ctx.saved_tensors
        if torch.is_grad_enabled() or not torch._C._has_storage(gradient):  # for its own gradient, or many at once
            return gradient / ctx.share * keep, None, None, None
        return backward(gradient, keep, ctx.share), None, None, None


def forward(x: Tensor, key: Tensor, probability: float, stream: int, keep: Tensor | None) -> Tensor:
    """What is kept of x, divided by its share; ``keep`` takes the mask."""
    found = torch.empty_like(x)
    places = (found.data_ptr(), 0 if keep is None else keep.data_ptr())
    halves, bound = noise.halves(int(key), stream), noise.bound(probability)
    compiled("forward", x.dtype)(x.data_ptr(), x.numel(), *halves, bound, *places, kept_share(probability))
    return found


def backward(gradient: Tensor, keep: Tensor, share: float) -> Tensor:
    """The gradient of x, given that of what was kept."""
    gradient = gradient.resolve_neg().contiguous()
    found = torch.empty_like(gradient)
    kernel = compiled("backward", gradient.dtype)
    kernel(gradient.data_ptr(), keep.data_ptr(), keep.numel(), found.data_ptr(), share)
    return found


@cache
def compiled(name: str, dtype: torch.dtype) -> Callable[..., None]:
    """The compiled function for tensors of a type."""
    from fl_platform.kernels import machine_code  # which models without such layers do not need

    kind = str(dtype).removeprefix("torch.")
    return machine_code.function("compiled_dropout", f"{name}_{kind}")


def compile_dropout(network: Network, dtype: torch.dtype) -> None:
    """Compile what a network's layers need for parameters of this type, so that the first round does not."""
    dtype = network.autocast or dtype
    layers = [layer for layer in network.module.modules() if isinstance(layer, Dropout) and not layer.channels]
    if dtype in DTYPES and layers:
        compiled("forward", dtype)
        compiled("backward", dtype)


def suits(x: Tensor, key: Tensor, shape: Sequence[int]) -> bool:
    """Tell whether there is compiled code for these numbers and a mask of this shape."""
    return (
        is_array(x, DTYPES)
        and is_array(key, (torch.int64,))
        and not (x.is_meta or key.is_meta)
        and x.shape == shape
        and 0 < x.numel() <= MOST
        and x.is_contiguous()
        and key.dim() == 0
        and not is_saved_elsewhere()
    )
