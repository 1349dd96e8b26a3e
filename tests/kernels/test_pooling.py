"""Maxima of 2 x 2 pixels beside torch's own pooling."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fl_platform.kernels import pooling


def images(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Images with ties."""
    return torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype) / 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(5, 3, 8, 6), (5, 3, 9, 7), (1, 40, 2, 3)])
@torch.no_grad()
def test_maxima_and_their_layout_are_those_of_max_pool2d(shape, layout, dtype):
    x = images(*shape, dtype=dtype).contiguous(memory_format=layout)
    expected = F.max_pool2d(x, 2)
    with pooling.Maxima():
        found = nn.MaxPool2d(2)(x)
    assert pooling.suits(x, 2)
    assert found.equal(expected)
    assert found.dtype == dtype
    assert found.is_contiguous(memory_format=layout)


@torch.no_grad()
def test_a_single_image_no_image_and_strided_images():
    for x in (
        images(3, 8, 6),
        images(0, 3, 8, 6),
        images(3, 6, 8).transpose(1, 2),
        images(4, 6, 8, 6)[:, ::2],
        images(4, 1, 8, 6).expand(4, 3, 8, 6),
    ):
        with pooling.Maxima():
            assert F.max_pool2d(x, (2, 2), stride=[2, 2]).equal(pooling.maxima(x))
        assert pooling.maxima(x).equal(F.max_pool2d(x, 2))


@torch.no_grad()
def test_a_model_that_diverged_stays_so():
    x = images(40, 4, 4)
    for place, value in enumerate((torch.nan, torch.inf, -torch.inf)):
        x[::3, place, place] = value
    x[1, :2, :2] = -torch.inf
    found, expected = pooling.maxima(x), F.max_pool2d(x, 2)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(), expected.nan_to_num())
    assert found.isnan().any()


OTHERS = {
    "kernel": {"kernel_size": 3},
    "one side": {"kernel_size": (2, 1)},
    "stride": {"kernel_size": 2, "stride": 1},
    "strides": {"kernel_size": 2, "stride": (2, 1)},
    "padding": {"kernel_size": 2, "padding": 1},
    "dilation": {"kernel_size": 2, "dilation": (1, 2)},
    "ceiling": {"kernel_size": 2, "ceil_mode": True},
}


@pytest.mark.parametrize("arguments", OTHERS.values(), ids=OTHERS)
@torch.no_grad()
def test_other_layers_are_left_to_torch(arguments):
    x = images(2, 3, 9, 7)
    assert not pooling.suits(x, **arguments)
    expected = F.max_pool2d(x, **arguments)
    with pooling.Maxima():
        assert F.max_pool2d(x, **arguments).equal(expected)
        assert F.max_pool2d(x, **arguments, return_indices=True)[0].equal(expected)


class Subclass(torch.Tensor):
    """A tensor of a user's own kind."""


def test_other_tensors_are_left_to_torch():
    x = images(2, 3, 8, 6)
    assert not pooling.suits(x.to("meta"), 2)  # which stands for another device
    assert not pooling.suits(x.to_sparse(), 2)
    assert not pooling.suits(x.long(), 2)
    assert not pooling.suits(x.as_subclass(Subclass), 2)
    with pooling.Maxima(), pytest.raises(RuntimeError, match="Output size is too small"):
        F.max_pool2d(x[..., :1], 2)


def test_gradients_and_transforms_of_functions_are_left_to_torch():
    """The gradient of a tie goes to the first of the pixels."""
    x = torch.zeros(1, 1, 2, 2)

    def pooled(x: torch.Tensor) -> torch.Tensor:
        assert not pooling.suits(x, 2)
        return F.max_pool2d(x, 2).sum()

    with pooling.Maxima():
        [found] = torch.autograd.grad(pooled(leaf := x.clone().requires_grad_()), leaf)
        assert found.flatten().tolist() == [1, 0, 0, 0]
        assert torch.func.grad(pooled)(x).equal(found)
        assert torch.vmap(pooled)(torch.stack([x, x])).tolist() == [0, 0]
        with torch.no_grad():
            assert torch.func.grad(pooled)(x).equal(found)


@torch.no_grad()
def test_a_compiler_can_trace_a_layer():
    x = images(2, 3, 8, 6)
    compiled = torch.compile(lambda x: F.max_pool2d(x, 2), backend="eager", fullgraph=True)
    with pooling.Maxima():
        assert compiled(x).equal(F.max_pool2d(x, 2))
