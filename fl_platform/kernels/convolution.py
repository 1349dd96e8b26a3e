"""Convolutions with bias, maxima of 2 x 2 pixels and ReLU in one compiled pass on a CPU, and their gradient.

The plain twin is ``F.conv2d``, ``F.max_pool2d`` and ``F.relu`` one after another. A maximum's gradient goes to one of
its four pixels, so a gradient takes a quarter of a convolution's products; what the other pixels would add, zero, is
not multiplied, and an infinite weight or number there does not become NaN by it. Sums are parted elsewhere, so results
differ by rounding. Under autocast numbers are rounded to bfloat16 where it rounds them, products are exact and sums
float32; two roundings less are taken: maxima are chosen before the output is rounded, and gradients of weights stay
float32.

Gain (``python -m benchmarks.kernels --only maxima``, Zen 5, W2, one thread, CPU time of rounds with and without in
turn): 30 % of a round, 1,267 ms for 1,800; in bf16-mixed 29 %, 784 for 1,104. A step of LeNet-5's two layers, 64
images, against oneDNN and compiled pooling: forward 1,045 and 2,705 us for 1,387 and 2,767, backward 878 and 2,697 for
2,704 and 6,151; in bf16-mixed forward 655 and 1,355 for 1,115 and 1,487, backward 541 and 1,409 for 1,163 and 3,768.

It takes x86 processors with AVX-512, for bfloat16 with AVX512-BF16, multiples of 32 output channels, images channels
last, and kernels that are applied everywhere within the image; elsewhere the plain twin runs.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from fl_platform.kernels import pooling
from fl_platform.kernels.arrays import dtype_of_products, is_array, is_multiplied, is_saved_elsewhere
from fl_platform.models.layers import MaxPool2d
from fl_platform.models.network import Network

OUTPUTS = 32
"""Output channels are a multiple of it, and input channels of images with a compiled gradient."""
VECTOR = 32
"""Numbers of a row are stored in multiples of it."""
COLUMNS = (3, 5)
"""Of kernels for which the gradient of images is compiled."""
BLOCK = 32_000
"""Bytes of images that a weight's gradient takes at once: they stay in the first cache."""
FEWEST = 32
"""Maxima of a channel that it takes at least: for each, all sums are read and written once."""
WORTH_IT = 256
"""Maxima of a channel from which on rearranging the weights is made up for."""
LARGEST = 1 << 22
"""Bytes of weights that are read from the caches for the gradient of images."""
PIXELS = 1 << 16
"""Of a block, whose number has 16 bits."""


def maxima(x: Tensor, convolution: nn.Conv2d, pool: MaxPool2d, is_rectified: bool) -> Tensor | None:
    """The maxima of a convolution, and ReLU of them; None where there is no compiled code for it."""
    if torch.compiler.is_compiling() or not suits(x, convolution, pool):
        return None
    weight, bias = convolution.weight, convolution.bias
    if torch.is_grad_enabled() and any(part.requires_grad for part in (x, weight, bias) if part is not None):
        found: Tensor = Maxima.apply(x, weight, bias, is_rectified)  # type: ignore[no-untyped-call]
        return found
    return forward(x, weight, bias, is_rectified, None)


class Maxima(torch.autograd.Function):
    """Maxima of a convolution with a gradient, which has one itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, is_rectified: bool) -> Tensor:
        which = empty_maxima(x, weight, torch.uint8)
        ctx.save_for_backward(x, weight, which)
        return forward(x, weight, bias, is_rectified, which)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, which = ctx.saved_tensors
        is_needed = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled() or not torch._C._has_storage(gradient):  # for its own gradient, or many at once
            return (*torch_backward(gradient, which, x, weight, is_needed), None)
        return (*backward(gradient, which, x, weight, is_needed), None)


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, is_rectified: bool, which: Tensor | None) -> Tensor:
    """The maxima; ``which`` takes which of its four pixels each is, row by row, and 4 where ReLU leaves nothing."""
    outputs, channels, kernel_rows, kernel_columns = weight.shape
    weight = weight.contiguous()
    bias = weight.new_zeros(outputs) if bias is None else bias.contiguous()
    dtype = dtype_of_products()
    found = empty_maxima(x, weight, dtype)
    length, numbers = kernel_columns * channels, x[0].numel()
    packed = empty(outputs * kernel_rows * (length + length % 2), dtype)
    room = empty(3 * numbers + VECTOR if dtype == torch.bfloat16 else 0, dtype)
    compiled("forward", dtype)(
        *(x.data_ptr(), x.dtype == torch.float32, *x.shape),
        *(weight.data_ptr(), bias.data_ptr(), outputs, kernel_rows, kernel_columns, is_rectified),
        *(found.data_ptr(), 0 if which is None else which.data_ptr(), packed.data_ptr(), room.data_ptr()),
    )
    return found


def backward(
    gradient: Tensor, which: Tensor, x: Tensor, weight: Tensor, is_needed: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The derivatives by images, weight and bias, those that are needed."""
    gradient = gradient.resolve_neg().contiguous(memory_format=torch.channels_last)
    weight = weight.contiguous()
    of_images = gradient_of_images(gradient, which, x, weight) if is_needed[0] else None
    if not (is_needed[1] or is_needed[2]):
        return of_images, None, None
    of_weight, of_bias = gradient_of_weight(gradient, which, x, weight)
    return of_images, of_weight if is_needed[1] else None, of_bias if is_needed[2] else None


def gradient_of_weight(gradient: Tensor, which: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The derivatives by weight and bias, in float32."""
    images, channels, height, width = x.shape
    outputs, _, kernel_rows, kernel_columns = weight.shape
    found, of_bias = torch.empty_like(weight), weight.new_empty(outputs)
    numbers, cells = x[0].numel(), which[0, 0].numel()
    dtype, vectors = gradient.dtype, (kernel_columns * channels + VECTOR - 1) // VECTOR
    block = max(BLOCK // (dtype.itemsize * numbers), math.ceil(FEWEST / cells))
    block = max(1, min(images, block, (PIXELS - 1) // (height * width)))
    source = x.float() if kernel_columns * channels % VECTOR else x  # which is copied before vectors reach beyond it
    room, sums = empty(block * numbers + VECTOR, dtype), empty(outputs * kernel_rows * vectors * VECTOR)
    entries = empty(outputs * (block * cells + 1), torch.int32 if dtype == torch.bfloat16 else torch.int64)
    compiled("of_weight", dtype)(
        *(gradient.data_ptr(), which.data_ptr(), source.data_ptr(), source.dtype == torch.float32),
        *(images, channels, height, width, outputs, kernel_rows, kernel_columns),
        *(found.data_ptr(), of_bias.data_ptr(), block, room.data_ptr(), entries.data_ptr(), sums.data_ptr()),
    )
    return found, of_bias


def gradient_of_images(gradient: Tensor, which: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The derivative by images."""
    outputs, _, kernel_rows, kernel_columns = weight.shape
    dtype, cells = gradient.dtype, which[0, 0].numel()
    found, packed = torch.empty_like(x, dtype=dtype), empty(weight.numel(), dtype)
    lists = empty(4 * cells * (outputs + 16), torch.int32 if dtype == torch.bfloat16 else torch.int64)
    pairs, sums = empty(4 * cells, torch.int64), empty(x[0].numel() if dtype == torch.bfloat16 else 0)
    compiled("of_images", dtype)(
        *(gradient.data_ptr(), which.data_ptr(), *x.shape),
        *(weight.data_ptr(), outputs, kernel_rows, kernel_columns, found.data_ptr()),
        *(packed.data_ptr(), lists.data_ptr(), pairs.data_ptr(), sums.data_ptr()),
    )
    return found.to(x.dtype)


def torch_backward(
    gradient: Tensor, which: Tensor, x: Tensor, weight: Tensor, is_needed: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """``backward`` by torch, which knows the gradient of its own operations and computes many at once."""
    rows, columns = (size - kernel + 1 for size, kernel in zip(x.shape[2:], weight.shape[2:], strict=True))
    shape = torch.Size((len(x), len(weight), rows, columns))
    of_pixels = pooling.torch_backward(gradient * (which < 4), which % 4, shape)
    one, zero = [1, 1], [0, 0]
    found = torch.ops.aten.convolution_backward(
        of_pixels,
        x.to(gradient.dtype),
        weight.to(gradient.dtype),
        [len(weight)],
        one,
        zero,
        one,
        False,
        zero,
        1,
        list(is_needed),
    )
    likes = (x, weight, weight)
    return tuple(None if part is None else part.to(like.dtype) for part, like in zip(found, likes, strict=True))


def empty_maxima(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor with a number for each maximum, channels last."""
    return torch.empty(shape_of_maxima(x, weight), dtype=dtype, memory_format=torch.channels_last)


def shape_of_maxima(x: Tensor, weight: Tensor) -> tuple[int, int, int, int]:
    """Images, channels, rows and columns of maxima."""
    rows, columns = (size - kernel + 1 for size, kernel in zip(x.shape[2:], weight.shape[2:], strict=True))
    return len(x), len(weight), rows // 2, columns // 2


def empty(size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Memory for compiled code to work in."""
    return torch.empty(size, dtype=dtype, device="cpu")


@cache
def compiled(name: str, dtype: torch.dtype) -> Callable[..., None]:
    """The compiled function for products of a type."""
    from fl_platform.kernels import machine_code  # which models without such layers do not need

    module = "compiled_convolution" if name == "forward" else "compiled_convolution_gradient"
    return machine_code.function(module, f"{name}_{str(dtype).removeprefix('torch.')}")


def compile_convolution(network: Network, dtype: torch.dtype) -> None:
    """Compile what a network's layers need for parameters of this type, so that the first round does not."""
    layers = [one for one in network.maxima if has_code(one.convolution, one.pooling)]
    products = network.autocast or dtype
    if dtype == torch.float32 and layers and is_multiplied(products):
        compiled("forward", products)
        compiled("of_weight", products)
        if any(has_gradient_of_images(one.convolution.weight) for one in layers):
            compiled("of_images", products)


def suits(x: Tensor, convolution: nn.Conv2d, pool: MaxPool2d) -> bool:
    """Tell whether there is compiled code for these layers; a user's model may hold layers of any kind."""
    weight, bias, dtype = convolution.weight, convolution.bias, dtype_of_products()
    return (
        has_code(convolution, pool)
        and is_array(x, (torch.float32, dtype))
        and all(is_array(part, (torch.float32,)) for part in (weight, bias) if part is not None)
        and not any(part.is_meta for part in (x, weight, bias) if part is not None)
        and x.dim() == weight.dim() == 4
        and x.numel() > 0
        and x.shape[1] == weight.shape[1]
        and (bias is None or bias.shape == weight.shape[:1])
        and all(size > kernel for size, kernel in zip(x.shape[2:], weight.shape[2:], strict=True))
        and x.shape[2] * x.shape[3] < PIXELS
        and weight.numel() * dtype.itemsize <= LARGEST
        and math.prod(shape_of_maxima(x, weight)) >= WORTH_IT * len(weight)
        and (not (torch.is_grad_enabled() and x.requires_grad) or has_gradient_of_images(weight))
        and x.is_contiguous(memory_format=torch.channels_last)
        and not is_saved_elsewhere()
        and is_multiplied(dtype)
    )


def has_code(convolution: nn.Conv2d, pool: MaxPool2d) -> bool:
    """Tell whether layers like these are compiled, for images of the right kind."""
    return (
        convolution.weight.shape[0] % OUTPUTS == 0
        and convolution.weight.numel() > 0
        and convolution.padding_mode == "zeros"
        and convolution.groups == 1
        and pooling.is_all(convolution.stride, 1)
        and convolution.padding != "same"
        and (convolution.padding == "valid" or pooling.is_all(convolution.padding, 0))
        and pooling.is_all(convolution.dilation, 1)
        and pooling.is_all(pool.kernel_size, 2)
        and pooling.is_all(pool.stride, 2)
        and pooling.is_all(pool.padding, 0)
        and pooling.is_all(pool.dilation, 1)
        and not pool.ceil_mode
        and not pool.return_indices
    )


def has_gradient_of_images(weight: Tensor) -> bool:
    """Tell whether the gradient of images, if they need one, is compiled."""
    return weight.shape[1] % OUTPUTS == 0 and weight.shape[3] in COLUMNS and len(weight) < 1 << 16
