"""Recycled memory: used again when it is free, and never before."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fl_platform.kernels.recycled import Recycler

LIKE = torch.zeros(3)
HOLDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda tensor: tensor,
    "row": lambda tensor: tensor[1],
    "view": lambda tensor: tensor.view(-1)[2:],
    "detached": lambda tensor: tensor.detach(),
    "array": lambda tensor: tensor.numpy(),
    "storage": lambda tensor: tensor.untyped_storage(),
    "graph": lambda tensor: (torch.ones(4, 5, requires_grad=True) * tensor).sum(),
}


def test_a_tensor_is_like_one_of_new_empty():
    tensor = Recycler().empty("x", (4, 5), LIKE.double())
    assert (tensor.shape, tensor.dtype, tensor.device) == ((4, 5), torch.float64, LIKE.device)
    assert tensor.data_ptr() % 64 == 0
    assert tensor.is_contiguous()


def test_free_memory_is_used_again_also_for_less_and_replaced_for_more():
    memory = Recycler()
    address = memory.empty("x", (4, 5), LIKE).data_ptr()
    assert memory.empty("x", (4, 5), LIKE).data_ptr() == address
    assert memory.empty("x", (3, 2), LIKE).data_ptr() == address
    assert memory.empty("x", (8, 5), LIKE).shape == (8, 5)
    assert [block.size for block in memory._free.values()] == [40]


def test_names_do_not_share_memory():
    memory = Recycler()
    first, second = memory.empty("x", (4, 5), LIKE), memory.empty("y", (4, 5), LIKE)
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize("how", HOLDS)
def test_memory_that_anything_holds_is_left_alone(how):
    memory = Recycler()
    tensor = memory.empty("x", (4, 5), LIKE).fill_(1.0)
    held, address = HOLDS[how](tensor), tensor.data_ptr()
    del tensor
    other = memory.empty("x", (4, 5), LIKE)
    assert other.data_ptr() != address
    del held, other
    gc.collect()
    assert len(memory._free) == 1
