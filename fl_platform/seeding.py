"""Named random streams: one independent stream per (seed, purpose, round, worker, ...).

Nothing here has state. A stream is found by its path, so partition, initial weights, cohorts and
batches depend on the seed alone and are shared by every algorithm; resuming needs no saved generator.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def key(seed: int, *path: str | int, bits: int = 64) -> int:
    """The number that stands for a path of names and indices."""
    text = "/".join(map(str, (seed, *path))).encode()
    return int.from_bytes(blake2b(text, digest_size=bits // 8).digest(), "little")


def generator(seed: int, *path: str | int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key(seed, *path, bits=128)))


def torch_generator(seed: int, *path: str | int) -> "torch.Generator":
    import torch

    return torch.Generator().manual_seed(key(seed, *path, bits=56))
