"""Random numbers as a function of (key, position): the same on every device, for any batching, with no state.

A hash of the counter replaces a generator, so a worker draws the same dropout mask or crop whether it is
computed alone, stacked with others, padded, or under vmap. Keys are int64 tensors from ``seeding.key``.
"""

from typing import TypeVar

import torch
from torch import Tensor

Key = TypeVar("Key", int, Tensor)

_MULTIPLIERS = (0x7FEB352D, 0x846CA68B - (1 << 32))  # the constants of the lowbias32 integer hash, as int32


def _mix(x: Tensor) -> Tensor:
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * _MULTIPLIERS[0]
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * _MULTIPLIERS[1]
    return x ^ ((x >> 16) & 0xFFFF)


def bits(key: Tensor, count: int, stream: int = 0) -> Tensor:
    """(..., count) int32 with 31 random bits each, for keys of shape (...)."""
    counter = torch.arange(count, dtype=torch.int32, device=key.device)
    low, high = (half.to(torch.int32).unsqueeze(-1) for half in halves(key, stream))
    return _mix(_mix(counter ^ low) ^ high) & 0x7FFFFFFF


def halves(key: Key, stream: int) -> tuple[Key, Key]:
    """What positions are hashed with, one after the other; of the second, the lower 32 bits."""
    return key & 0xFFFFFFFF, (key >> 32) + stream * 0x9E3779B9


def integers(key: Tensor, count: int, below: int, stream: int = 0) -> Tensor:
    """(..., count) int64 in [0, below); the bias is below / 2^31."""
    return bits(key, count, stream).to(torch.int64) % below


def keep_mask(key: Tensor, count: int, drop: float, stream: int = 0) -> Tensor:
    """(..., count) bool, False with probability ``drop``."""
    return bits(key, count, stream) > bound(drop)


def bound(drop: float) -> int:
    """The largest of ``bits`` that are dropped; it fits int32 for drop = 1, too."""
    return int(drop * (1 << 31)) - 1
