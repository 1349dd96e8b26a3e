"""Recycled memory: used again when it is free, and never before."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fl_platform.kernels.recycled import KEPT, LARGE, Recycler

LIKE = torch.zeros(3)
WIDE = LARGE // 4
HOLDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda tensor: tensor,
    "row": lambda tensor: tensor[1],
    "view": lambda tensor: tensor.view(-1)[2:],
    "detached": lambda tensor: tensor.detach(),
    "array": lambda tensor: tensor.numpy(),
    "storage": lambda tensor: tensor.untyped_storage(),
    "graph": lambda tensor: (torch.ones(4, 1, requires_grad=True) * tensor).sum(),
}


def test_a_tensor_is_like_one_of_new_empty():
    tensor = Recycler().empty("x", (4, WIDE), LIKE.double())
    assert (tensor.shape, tensor.dtype, tensor.device) == ((4, WIDE), torch.float64, LIKE.device)
    assert tensor.data_ptr() % 64 == 0
    assert tensor.is_contiguous()


def test_free_memory_is_used_again_also_for_less_and_replaced_for_more():
    memory = Recycler()
    address = memory.empty("x", (4, WIDE), LIKE).data_ptr()
    assert memory.empty("x", (4, WIDE), LIKE).data_ptr() == address
    assert memory.empty("x", (3, WIDE), LIKE).data_ptr() == address
    assert memory.empty("x", (8, WIDE), LIKE).shape == (8, WIDE)
    assert [block.size for block in memory._free["x"]] == [8 * WIDE]


def test_names_do_not_share_memory():
    memory = Recycler()
    first, second = memory.empty("x", (4, WIDE), LIKE), memory.empty("y", (4, WIDE), LIKE)
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize("how", HOLDS)
def test_memory_that_anything_holds_is_left_alone(how):
    memory = Recycler()
    tensor = memory.empty("x", (4, WIDE), LIKE).fill_(1.0)
    held, address = HOLDS[how](tensor), tensor.data_ptr()
    del tensor
    other = memory.empty("x", (4, WIDE), LIKE)
    assert other.data_ptr() != address
    del held, other
    gc.collect()
    assert len(memory._free["x"]) == 2


def test_only_a_few_free_blocks_are_kept():
    memory = Recycler()
    held = [memory.empty("x", (1, WIDE), LIKE) for _ in range(KEPT + 4)]
    assert len({tensor.data_ptr() for tensor in held}) == KEPT + 4
    held.clear()
    assert len(memory._free["x"]) == KEPT


def test_small_tensors_are_left_to_the_allocator():
    memory = Recycler()
    assert memory.empty("x", (2, 3), LIKE).shape == (2, 3)
    assert not memory._free
