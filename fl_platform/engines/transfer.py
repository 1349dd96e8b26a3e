"""Arrays of the host to a device and back, in as few copies as possible: each one may make the host wait."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(arrays: Sequence[NDArray[np.int64]], device: torch.device) -> list[Tensor]:
    """Return int64 arrays as tensors of the device: views of one copy, pinned and not waited for on CUDA.

    On a CPU the tensors share the memory of the arrays.
    """
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    packed = torch.from_numpy(np.concatenate([array.reshape(-1) for array in arrays]))
    pieces = pinned(packed, device).to(device, non_blocking=True).split_with_sizes([array.size for array in arrays])
    return [piece.view(array.shape) for piece, array in zip(pieces, arrays, strict=True)]


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the host in memory from which CUDA copies without waiting; as it is for other devices."""
    return tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor


def moved(stack: Tensor, device: torch.device) -> Tensor:
    """Return the stack on a device, in one copy: through pinned memory between the host and CUDA."""
    if stack.device == device:
        return stack
    if device.type == "cpu" and stack.device.type == "cuda":
        return torch.empty(stack.shape, dtype=stack.dtype, pin_memory=True).copy_(stack)
    return pinned(stack, device).to(device, non_blocking=device.type != "cpu")
