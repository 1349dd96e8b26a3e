"""Masked batch normalisation on CUDA: one kernel forward and one backward, in Triton, which CUDA builds of torch bring.

Their plain twins, a dozen operations each, are in ``models/stack_norm.py``. Gain: not measured, no GPU has run it.
Where Triton is installed, ``tests/device/test_masked_norm.py`` runs both in its interpreter on a CPU beside their
twins, and compiles them for GPUs of three generations.

Each program computes one channel of one worker: its statistics in one pass over the batch and the result in another.
"""

from contextlib import AbstractContextManager

import torch
import triton
import triton.language as tl
from torch import Tensor

from fl_platform.models.stack_norm import operators, plain, plain_backward

BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def forward_kernel(  # type: ignore[no-untyped-def]
    x, weight, bias, mask, running_mean, running_var, out, means, reciprocals, rows, channels, positions, momentum, eps,
    x_worker, x_row, x_channel, x_position, out_worker, out_row, out_channel, out_position,
    weight_worker, weight_channel, bias_worker, bias_channel, mask_worker, mask_row,
    mean_worker, mean_channel, var_worker, var_channel,
    UPDATES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``models.stack_norm.plain`` of one worker and channel."""
    program = tl.program_id(0).to(tl.int64)
    worker, channel = program // channels, program % channels
    values = x + worker * x_worker + channel * x_channel
    real = mask + worker * mask_worker
    total = rows * positions
    number = x.dtype.element_ty
    sums, counts = tl.zeros([BLOCK], number), tl.zeros([BLOCK], number)
    for start in range(0, total, BLOCK):
        index = start + tl.arange(0, BLOCK)
        row, inside = (index // positions).to(tl.int64), index < total
        keep = tl.load(real + row * mask_row, mask=inside, other=0) != 0
        sums += tl.load(values + row * x_row + (index % positions) * x_position, mask=keep, other=0.0)
        counts += keep.to(number)
    count = tl.maximum(tl.sum(counts, 0), 1.0)
    mean = tl.sum(sums, 0) / count
    squares = tl.zeros([BLOCK], number)
    for start in range(0, total, BLOCK):
        index = start + tl.arange(0, BLOCK)
        row, inside = (index // positions).to(tl.int64), index < total
        keep = tl.load(real + row * mask_row, mask=inside, other=0) != 0
        found = tl.load(values + row * x_row + (index % positions) * x_position, mask=keep, other=0.0)
        centred = tl.where(keep, found - mean, 0.0)
        squares += centred * centred
    variance = tl.sum(squares, 0) / count
    reciprocal = 1.0 / tl.sqrt(variance + eps)
    scale = reciprocal * tl.load(weight + worker * weight_worker + channel * weight_channel)
    shift = tl.load(bias + worker * bias_worker + channel * bias_channel)
    target = out + worker * out_worker + channel * out_channel
    for start in range(0, total, BLOCK):
        index = start + tl.arange(0, BLOCK)
        row, position, inside = (index // positions).to(tl.int64), index % positions, index < total
        found = tl.load(values + row * x_row + position * x_position, mask=inside)
        tl.store(target + row * out_row + position * out_position, (found - mean) * scale + shift, mask=inside)
    tl.store(means + program, mean)
    tl.store(reciprocals + program, reciprocal)
    if UPDATES:
        place = running_mean + worker * mean_worker + channel * mean_channel
        tl.store(place, (1.0 - momentum) * tl.load(place) + momentum * mean)
        unbiased = variance * (count / tl.maximum(count - 1.0, 1.0))
        place = running_var + worker * var_worker + channel * var_channel
        tl.store(place, (1.0 - momentum) * tl.load(place) + momentum * unbiased)


@triton.jit  # type: ignore[untyped-decorator]
def backward_kernel(  # type: ignore[no-untyped-def]
    gradient, x, weight, mask, means, reciprocals, x_gradient, weight_gradient, bias_gradient,
    rows, channels, positions,
    gradient_worker, gradient_row, gradient_channel, gradient_position, x_worker, x_row, x_channel, x_position,
    out_worker, out_row, out_channel, out_position, weight_worker, weight_channel, mask_worker, mask_row,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """``models.stack_norm.plain_backward`` of one worker and channel."""
    program = tl.program_id(0).to(tl.int64)
    worker, channel = program // channels, program % channels
    values = x + worker * x_worker + channel * x_channel
    slopes = gradient + worker * gradient_worker + channel * gradient_channel
    real = mask + worker * mask_worker
    total = rows * positions
    number = x.dtype.element_ty
    mean, reciprocal = tl.load(means + program), tl.load(reciprocals + program)
    of_bias, of_weight, counts = tl.zeros([BLOCK], number), tl.zeros([BLOCK], number), tl.zeros([BLOCK], number)
    for start in range(0, total, BLOCK):
        index = start + tl.arange(0, BLOCK)
        row, position, inside = (index // positions).to(tl.int64), index % positions, index < total
        slope = tl.load(slopes + row * gradient_row + position * gradient_position, mask=inside, other=0.0)
        found = tl.load(values + row * x_row + position * x_position, mask=inside, other=0.0)
        of_bias += slope
        of_weight += slope * (found - mean) * reciprocal
        counts += (tl.load(real + row * mask_row, mask=inside, other=0) != 0).to(number)
    count = tl.maximum(tl.sum(counts, 0), 1.0)
    bias_slope, weight_slope = tl.sum(of_bias, 0), tl.sum(of_weight, 0)
    scale = reciprocal * tl.load(weight + worker * weight_worker + channel * weight_channel)
    target = x_gradient + worker * out_worker + channel * out_channel
    for start in range(0, total, BLOCK):
        index = start + tl.arange(0, BLOCK)
        row, position, inside = (index // positions).to(tl.int64), index % positions, index < total
        slope = tl.load(slopes + row * gradient_row + position * gradient_position, mask=inside, other=0.0)
        found = tl.load(values + row * x_row + position * x_position, mask=inside, other=0.0)
        keep = tl.load(real + row * mask_row, mask=inside, other=0) != 0
        through = tl.where(keep, (bias_slope + (found - mean) * reciprocal * weight_slope) / count, 0.0)
        tl.store(target + row * out_row + position * out_position, scale * (slope - through), mask=inside)
    tl.store(weight_gradient + program, weight_slope)
    tl.store(bias_gradient + program, bias_slope)


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``models.stack_norm.plain``; in float32, as which Triton passes scalars: other numbers are its twin's."""
    if x.dtype != torch.float32:
        return plain(x, weight, bias, mask, running_mean, running_var, momentum, eps)
    flat = _flat(x)
    out = torch.empty_like(flat)  # in the order of x, which the next convolution of the stack can take without a copy
    workers, rows, channels, positions = flat.shape
    means, reciprocals = (x.new_empty(workers, channels) for _ in range(2))
    strided = (flat, out, weight, bias, mask, running_mean, running_var)
    with on_device_of(x):
        forward_kernel[(workers * channels,)](
            flat, weight, bias, mask, running_mean, running_var, out, means, reciprocals, rows, channels, positions,
            momentum, eps, *(length for tensor in strided for length in tensor.stride()),
            UPDATES=momentum != 0, BLOCK=BLOCK,
        )  # fmt: skip
    return out.view(x.shape), means, reciprocals


def backward(
    gradient: Tensor, x: Tensor, weight: Tensor, mask: Tensor, mean: Tensor, reciprocal: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``models.stack_norm.plain_backward``."""
    if x.dtype != torch.float32:
        return plain_backward(gradient, x, weight, mask, mean, reciprocal)
    flat, slopes = _flat(x), _flat(gradient)
    found = torch.empty_like(flat)
    workers, rows, channels, positions = flat.shape
    weight_gradient, bias_gradient = (x.new_empty(workers, channels) for _ in range(2))
    with on_device_of(x):
        backward_kernel[(workers * channels,)](
            slopes, flat, weight, mask, mean, reciprocal, found, weight_gradient, bias_gradient,
            rows, channels, positions, *slopes.stride(), *flat.stride(), *found.stride(), *weight.stride(),
            *mask.stride(), BLOCK=BLOCK,
        )  # fmt: skip
    return found.view(x.shape), weight_gradient, bias_gradient


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Triton starts kernels on the current device, whatever that of their arguments is."""
    return torch.cuda.device_of(x)  # type: ignore[no-untyped-call]


def _flat(x: Tensor) -> Tensor:
    """(S, B, C, positions); a copy only where the positions of x do not follow each other at one distance."""
    return x.flatten(3) if x.dim() > 3 else x.unsqueeze(3)


def try_out(device: torch.device) -> None:
    """Run both kernels on a device beside their twins.

    Raises RuntimeError where the results differ, and whatever Triton does where it cannot compile: it needs a C
    compiler and Python's header files, and a GPU that it knows.
    """
    x = torch.arange(12.0, device=device).view(2, 3, 2).sin()
    ones, mask = torch.ones(2, 2, device=device), torch.tensor([[1, 1, 1], [1, 1, 0]], device=device).bool()
    for kinds, given in (
        ((plain, forward), lambda: (x, ones, ones, mask, torch.zeros_like(ones), torch.ones_like(ones), 0.1, 1e-5)),
        ((plain_backward, backward), lambda: (x, x, ones, mask, ones, ones)),
    ):
        expected, found = (kind(*given()) for kind in kinds)
        if not all(torch.allclose(a, b, atol=1e-5) for a, b in zip(expected, found, strict=True)):
            raise RuntimeError("the kernels of masked batch normalisation compute something else on this device")


def register() -> None:
    """Let the operators use the kernels on CUDA."""
    operators.impl("masked_norm", forward, "CUDA")  # type: ignore[no-untyped-call]
    operators.impl("masked_norm_backward", backward, "CUDA")  # type: ignore[no-untyped-call]
