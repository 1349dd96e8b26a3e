"""Batch normalisation of a stack of workers; padding is left out, by one operator forward and one backward.

    mean = sum_b m_b x_b / n,  variance = sum_b m_b (x_b - mean)^2 / n,
    out = weight (x - mean) / sqrt(variance + eps) + bias

for every worker and channel; m_b is 1 for a real row and 0 for padding, n the number of real values, at least 1.

The operators ``fl_platform::masked_norm`` and ``fl_platform::masked_norm_backward`` are written in plain tensor
operations here, for any device, a dozen each. ``kernels/masked_norm.py`` has one kernel for each on CUDA.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

operators = torch.library.Library("fl_platform", "DEF")  # type: ignore[no-untyped-call]
operators.define(  # type: ignore[no-untyped-call]
    "masked_norm(Tensor x, Tensor weight, Tensor bias, Tensor mask, Tensor(a!) running_mean, Tensor(b!) running_var,"
    " float momentum, float eps) -> (Tensor, Tensor, Tensor)"
)
operators.define(  # type: ignore[no-untyped-call]
    "masked_norm_backward(Tensor gradient, Tensor x, Tensor weight, Tensor mask, Tensor mean, Tensor reciprocal)"
    " -> (Tensor, Tensor, Tensor)"
)


def plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise (S, B, C, ...) x by workers and channels; mask is (S, B), the others are (S, C).

    The running statistics move in place by ``momentum`` towards the mean and the variance with n - 1 for n; 0 leaves
    them alone. Returns the normalised x, and (S, C) means and 1 / sqrt(variance + eps).
    """
    shape, over = _broadcast(x)
    rows, count = _rows(mask, x)
    mean = (x * rows).sum(over) / count  # no matrix product: those may be rounded to fewer digits on a device
    centred = x - mean.view(shape)
    variance = centred.square().mul_(rows).sum(over) / count
    reciprocal = (variance + eps).rsqrt_()
    if momentum:
        unbiased = variance * (count / (count - 1).clamp(min=1))
        running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
        running_var.mul_(1 - momentum).add_(unbiased, alpha=momentum)
    return torch.addcmul(bias.view(shape), centred, (weight * reciprocal).view(shape)), mean, reciprocal


def plain_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, mask: Tensor, mean: Tensor, reciprocal: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias.

    With normalised h = (x - mean) reciprocal: sum_b g_b for the bias, sum_b g_b h_b for the weight, and
    weight reciprocal (g_b - m_b / n (bias gradient + h_b weight gradient)) for x.
    """
    shape, over = _broadcast(x)
    rows, count = _rows(mask, x)
    normal = (x - mean.view(shape)).mul_(reciprocal.view(shape))
    bias_gradient = gradient.sum(over)
    weight_gradient = (gradient * normal).sum(over)
    through = torch.addcmul(bias_gradient.view(shape), normal, weight_gradient.view(shape)).mul_(rows)
    found = torch.addcdiv(gradient, through, count.view(-1, *[1] * (x.dim() - 1)), value=-1)
    return found.mul_((weight * reciprocal).view(shape)), weight_gradient, bias_gradient


def _broadcast(x: Tensor) -> tuple[tuple[int, ...], list[int]]:
    """The shape in which (S, C) meets x, and the dimensions of x that a channel's sums run over."""
    return (len(x), 1, x.shape[2], *[1] * (x.dim() - 3)), [1, *range(3, x.dim())]


def _rows(mask: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The mask in the shape of x, and (S, 1) numbers of real values in a channel."""
    rows = mask.to(x.dtype)
    count = (rows.sum(1, keepdim=True) * x[0, 0, 0].numel()).clamp_(min=1)
    return rows.view(*rows.shape, *[1] * (x.dim() - 2)), count


operators.impl("masked_norm", plain, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
operators.impl("masked_norm_backward", plain_backward, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]


class WorkerNorm(torch.autograd.Function):
    """x (B, C, ...) of one worker normalised, under torch.vmap over workers; its running statistics move in place.

    Arguments: x, weight (C,), bias (C,), mask (B,) or None, running mean and variance (C,), momentum, eps.
    """

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        raise NotImplementedError("only under torch.vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Part of what torch asks of a function under vmap."""

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        stacks = (
            argument.movedim(dim, 0)
            if dim is not None
            else argument.expand(info.batch_size, *argument.shape)
            if isinstance(argument, Tensor)
            else argument
            for argument, dim in zip(arguments, dims, strict=True)
        )
        norm = FullStackNorm if arguments[3] is None else MaskedStackNorm
        return norm.apply(*stacks), 0  # type: ignore[no-untyped-call]


class MaskedStackNorm(torch.autograd.Function):
    """``WorkerNorm`` of S workers, some of whose batches are padded: every tensor has a dimension for them in front."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, *others: Any) -> Tensor:
        out, mean, reciprocal = torch.ops.fl_platform.masked_norm(x, weight, bias, mask, *others)
        ctx.save_for_backward(x, weight, mask, mean, reciprocal)
        found: Tensor = out
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found = torch.ops.fl_platform.masked_norm_backward(gradient, *ctx.saved_tensors)
        return *found, *[None] * 5


class FullStackNorm(torch.autograd.Function):
    """``WorkerNorm`` of S workers without padding: PyTorch's own, to which a worker's channels are further channels."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mask: None,
        running_mean: Tensor,
        running_var: Tensor,
        momentum: float,
        eps: float,
    ) -> Tensor:
        joined, scales = x.transpose(0, 1).flatten(1, 2), weight.flatten()
        out, mean, reciprocal = torch.native_batch_norm(joined, scales, bias.flatten(), None, None, True, 0.0, eps)
        ctx.save_for_backward(joined, scales, mean, reciprocal)
        ctx.eps = eps
        if momentum:
            count = x[0, :, 0].numel()
            unbiased = reciprocal.pow(-2).sub_(eps).mul_(count / max(count - 1, 1))
            running_mean.lerp_(mean.view(weight.shape), momentum)
            running_var.lerp_(unbiased.view(weight.shape), momentum)
        return out.view(len(out), *weight.shape, *out.shape[2:]).transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        joined, scales, mean, reciprocal = ctx.saved_tensors
        x_gradient, weight_gradient, bias_gradient = torch.ops.aten.native_batch_norm_backward(
            gradient.transpose(0, 1).flatten(1, 2),
            joined,
            scales,
            None,
            None,
            mean,
            reciprocal,
            True,
            ctx.eps,
            [True] * 3,
        )
        shape = gradient.shape[:3:2]  # (S, C)
        stacked = x_gradient.view(gradient.shape[1], *shape, *gradient.shape[3:]).transpose(0, 1)
        return stacked, weight_gradient.view(shape), bias_gradient.view(shape), *[None] * 5
