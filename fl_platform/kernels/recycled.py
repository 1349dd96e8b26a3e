"""Memory that is used again once nobody holds it. Its plain twin is ``Tensor.new_empty``.

The operating system clears fresh memory page by page, which for the updates of a cohort on ten million parameters takes
a good part of the round.
"""

import math
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

Memory = np.ndarray[Any, np.dtype[Any]]


class Recycler:
    """Hands out uninitialised tensors by name; at most one free block of memory per name is kept."""

    def __init__(self) -> None:
        self._free: dict[str, Memory] = {}

    def empty(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """``like.new_empty(shape)``, in the memory of an earlier tensor of this name if that tensor, its views and the
        arrays made of it are all gone."""
        if like.device.type != "cpu":  # the allocators of accelerators do the same themselves
            return like.new_empty(shape)
        size = math.prod(shape)
        memory = self._free.pop(name, None)
        if memory is None or memory.size < size:
            memory = like.new_empty(size).numpy()
        lease = memory[:size]  # an object of its own, held by the storage of the tensor below
        weakref.finalize(lease, self._free.__setitem__, name, memory).atexit = False
        return torch.from_numpy(lease).view(shape)
