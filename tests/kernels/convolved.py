"""Convolutions whose maxima are taken: cases of them, compiled, by torch's layers and in float64."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fl_platform.kernels import convolution
from fl_platform.models.layers import ConvolvedMaxima, MaxPool2d, Pass, running

FLOAT, NARROW = torch.float32, torch.bfloat16
needs_bfloat16 = pytest.mark.skipif(not convolution.is_multiplied(NARROW), reason="the processor has no AVX512-BF16")
KINDS = [
    pytest.param(FLOAT, marks=pytest.mark.skipif(not convolution.is_multiplied(FLOAT), reason="it has no AVX-512")),
    pytest.param(NARROW, marks=needs_bfloat16),
]


class Shape(NamedTuple):
    images: int
    channels: int
    height: int
    width: int
    outputs: int
    kernel: tuple[int, int] = (5, 5)


SHAPES = {
    "first of LeNet-5": Shape(7, 3, 32, 32, 32),
    "second of LeNet-5": Shape(7, 32, 14, 14, 64),
    "one image": Shape(1, 32, 14, 14, 64),
    "one image of one channel": Shape(1, 1, 28, 28, 32),
    "one maximum": Shape(3, 32, 6, 6, 32),
    "sides that are not even": Shape(5, 3, 13, 16, 32, (4, 3)),
    "one pixel under the kernel": Shape(3, 7, 4, 6, 96, (1, 1)),
    "one number under the kernel": Shape(3, 1, 5, 4, 32, (1, 1)),
    "rows of two and a half vectors": Shape(3, 16, 9, 12, 32),
    "rows of more than one and a half": Shape(3, 10, 9, 12, 32),
    "six vectors a row": Shape(3, 64, 8, 10, 64, (3, 3)),
    "six rows of five vectors": Shape(2, 32, 9, 8, 32, (6, 5)),
    "rows of four pixels": Shape(2, 32, 9, 8, 32, (2, 4)),
    "more images than a block": Shape(70, 3, 16, 16, 32, (3, 3)),
}


class Case(NamedTuple):
    x: Tensor
    weight: Tensor
    bias: Tensor | None


def case(shape: Shape, dtype: torch.dtype = torch.float32, has_bias: bool = True) -> Case:
    generator = torch.Generator().manual_seed(shape.height)
    x = torch.randn(shape[:4], generator=generator).to(dtype).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(shape.outputs, shape.channels, *shape.kernel, generator=generator)
    weight /= weight[0].numel() ** 0.5
    return Case(x, weight, torch.randn(shape.outputs, generator=generator) if has_bias else None)


def layers_of(case: Case, is_rectified: bool = False) -> ConvolvedMaxima:
    outputs, channels, *kernel = case.weight.shape
    layer = nn.Conv2d(channels, outputs, tuple(kernel), bias=case.bias is not None)
    for name in ("weight", "bias"):
        layer._parameters[name] = getattr(case, name)
    return ConvolvedMaxima([layer, MaxPool2d(2), *([nn.ReLU()] if is_rectified else [])])


@contextmanager
def arithmetic(kind: torch.dtype) -> Iterator[None]:
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False, enabled=kind == NARROW):
        yield


def compiled(case: Case, is_rectified: bool = False, kind: torch.dtype = NARROW) -> Tensor:
    with arithmetic(kind), running(Pass(True, maxima=convolution.maxima)):
        return layers_of(case, is_rectified)(case.x)


def plain(case: Case, is_rectified: bool = False, kind: torch.dtype = NARROW) -> Tensor:
    with arithmetic(kind):
        return layers_of(case, is_rectified)(case.x)


def exact(case: Case, is_rectified: bool = False, kind: torch.dtype = NARROW) -> Tensor:
    """The same without rounding."""
    found = F.max_pool2d(F.conv2d(*case), 2)
    return found.relu() if is_rectified else found


def rounded(case: Case, kind: torch.dtype = NARROW) -> Case:
    """The numbers that are multiplied, in float64."""
    x, weight, bias = case
    return Case(x.to(kind).double(), weight.to(kind).double(), None if bias is None else bias.double())


Function = Callable[[Case, bool, torch.dtype], Tensor]


def leaves_of(case: Case) -> list[Tensor | None]:
    """All parts with a gradient, but images of a kind for which it is not compiled."""
    is_needed = [convolution.has_gradient_of_images(case.weight), True, True]
    pairs = zip(case, is_needed, strict=True)
    return [None if part is None else part.detach().requires_grad_(needed) for part, needed in pairs]


def wanted(leaves: list[Tensor | None]) -> list[Tensor]:
    return [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]


def in_both_passes(function: Function, case: Case, is_rectified: bool, kind: torch.dtype = NARROW) -> list[Tensor]:
    """The maxima and their derivatives by all that the layer is given."""
    leaves = leaves_of(case)
    found = function(Case(*leaves), is_rectified, kind)
    assert function is not compiled or type(found.grad_fn).__name__ == "MaximaBackward"
    gradient = torch.randn(found.shape, generator=torch.Generator().manual_seed(9)).to(kind).to(found.dtype)
    gradients = torch.autograd.grad(found, wanted(leaves), gradient)
    return [found.detach(), *gradients]
