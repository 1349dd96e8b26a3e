"""Maxima of 2 x 2 pixels and their gradient, compiled on a CPU. The plain twin is ``F.max_pool2d``.

torch's writes an int64 index beside every maximum, also where no gradient is taken; on the way back it clears all
pixels and then adds number by number. The compiled one keeps a byte per maximum, none without a gradient, and writes
every pixel once. Maxima, NaN and the pixels that gradients go to are the same.

Gain (``python -m benchmarks.kernels --only pooling``, W2, one thread, CPU time of rounds with and without in turn, on
Zen 4 under changing load): 3 to 9 % of a round in bf16-mixed (2,335 ms for 2,472, 2,235 for 2,309 and 2,264 for 2,508),
1 to 2 % in float32 (3,691 for 3,776 and 3,735 for 3,764). Images that are not channels last gain more: torch's pooling
takes 9.2 ms for 64 of 32 x 28 x 28, this 0.8.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fl_platform.kernels.arrays import is_array, is_saved_elsewhere
from fl_platform.models.layers import MaxPool2d
from fl_platform.models.network import Network

DTYPES = (torch.float32, torch.bfloat16)


def max_pool2d(x: Tensor, kernel_size: Any, *args: Any, **kwargs: Any) -> Any:
    """F.max_pool2d, compiled where there is compiled code for it."""
    if torch.compiler.is_compiling() or not suits(x, kernel_size, *args, **kwargs):
        return F.max_pool2d(x, kernel_size, *args, **kwargs)
    if torch.is_grad_enabled() and x.requires_grad:
        return Pooling.apply(x)  # type: ignore[no-untyped-call]
    return forward(x, None)


class Pooling(torch.autograd.Function):
    """Maxima with a gradient, which has one itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        which = pooled(x, torch.uint8)
        ctx.save_for_backward(which)
        ctx.shape, ctx.layout = x.shape, layout_of(x)
        return forward(x, which)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        [which] = ctx.saved_tensors
        if torch.is_grad_enabled() or not torch._C._has_storage(gradient):  # for its own gradient, or many at once
            return torch_backward(gradient, which, ctx.shape)
        return backward(gradient, which, ctx.shape, ctx.layout)


def forward(x: Tensor, which: Tensor | None) -> Tensor:
    """The maxima; ``which`` takes which of its four pixels each is, row by row."""
    found = pooled(x, x.dtype)
    if not x.is_meta:
        places = 0 if which is None else which.data_ptr()
        kernel = compiled("forward", x.dtype)
        kernel(x.data_ptr(), *x.shape, not x.is_contiguous(), found.data_ptr(), places)
    return found


def pooled(x: Tensor, dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor with a number for each maximum, laid out as the images are."""
    images, channels, height, width = x.shape
    shape = (images, channels, height // 2, width // 2)
    return torch.empty(shape, dtype=dtype, device=x.device, memory_format=layout_of(x))


def layout_of(x: Tensor) -> torch.memory_format:
    """The memory format of images that are in one of the two."""
    return torch.contiguous_format if x.is_contiguous() else torch.channels_last


def backward(gradient: Tensor, which: Tensor, shape: torch.Size, layout: torch.memory_format) -> Tensor:
    """The gradient of images of this shape and layout, given that of their maxima."""
    gradient = gradient.resolve_neg().contiguous(memory_format=layout)
    found = torch.empty(shape, dtype=gradient.dtype, device=gradient.device, memory_format=layout)
    if shape[2] % 2 or shape[3] % 2:
        found.zero_()  # the last row or column, which is not written
    if not found.is_meta:
        is_channels_last = layout == torch.channels_last
        kernel = compiled("backward", gradient.dtype)
        kernel(gradient.data_ptr(), which.data_ptr(), *shape, is_channels_last, found.data_ptr())
    return found


def torch_backward(gradient: Tensor, which: Tensor, shape: torch.Size) -> Tensor:
    """``backward`` by torch, which knows the gradient of its own operations and computes many at once."""
    _, _, height, width = shape
    rows = torch.arange(0, height - 1, 2, device=which.device).unsqueeze(1)
    columns = torch.arange(0, width - 1, 2, device=which.device)
    indices = (rows + which // 2) * width + columns + which % 2
    x = torch.empty(shape, dtype=gradient.dtype, device=which.device)  # whose values do not count
    two, one, zero = [2, 2], [1, 1], [0, 0]
    found: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(gradient, x, two, two, zero, one, False, indices)
    return found


@cache
def compiled(name: str, dtype: torch.dtype) -> Callable[..., None]:
    """The compiled function for tensors of a type."""
    from fl_platform.kernels import machine_code  # which models without such layers do not need

    kind = str(dtype).removeprefix("torch.")
    return machine_code.function("compiled_pooling", f"{name}_{kind}")


def compile_pooling(network: Network, dtype: torch.dtype) -> None:
    """Compile what a network's layers need for parameters of this type, so that the first round does not."""
    dtype = network.autocast or dtype
    if dtype in DTYPES and any(isinstance(layer, MaxPool2d) for layer in network.module.modules()):
        compiled("forward", dtype)
        compiled("backward", dtype)


def suits(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> bool:
    """Tell whether there is compiled code for this layer; a user's model may hold layers of any kind."""
    return (
        is_array(x, DTYPES)
        and x.dim() == 4
        and x.numel() > 0
        and min(x.shape[-2:]) >= 2
        and (x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last))
        and is_all(kernel_size, 2)
        and (stride is None or is_all(stride, 2))
        and is_all(padding, 0)
        and is_all(dilation, 1)
        and not ceil_mode
        and not return_indices
        and not is_saved_elsewhere()
    )


def is_all(sizes: Any, size: int) -> bool:
    """Tell whether an argument, one number or one for each direction, is this size everywhere."""
    return all(one == size for one in (sizes if isinstance(sizes, Sequence) else [sizes]))
