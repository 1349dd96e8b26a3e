"""Whose code runs on a tensor: that of its device, or of the device that a tensor without values stands for.

The CPU and other devices run different code in places. ``plan`` runs a round on PyTorch's meta device, whose tensors
have a size and no values, and counts the bytes that the code of one or the other holds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

_meant: ContextVar[str] = ContextVar("meant", default="cuda")


@contextmanager
def standing_for(device: str) -> Iterator[None]:
    """Let tensors of the meta device stand for those of another type of device within the block."""
    token = _meant.set(device)
    try:
        yield
    finally:
        _meant.reset(token)


def code_of(tensor: Tensor) -> str:
    """The type of device whose code runs on a tensor."""
    return _meant.get() if tensor.is_meta else tensor.device.type
