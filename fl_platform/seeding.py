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
    """The NumPy generator of a stream: a seed and a path such as ("cohort", round)."""
    return np.random.Generator(np.random.Philox(key=key(seed, *path, bits=128)))


def torch_generator(seed: int, *path: str | int) -> "torch.Generator":
    """The PyTorch generator of a stream."""
    import torch

    return torch.Generator().manual_seed(key(seed, *path, bits=56))


def stream_keys(steps: int, workers: np.ndarray, seed: int, *path: str | int) -> np.ndarray:
    """(steps, S) int64 keys for ``noise``, one per local step and worker of a round."""
    counter = np.arange(steps, dtype=np.uint64)[:, None] << np.uint64(40)
    mixed = (counter + workers.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(key(seed, *path))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed ^ (mixed >> np.uint64(31))).astype(np.int64)
