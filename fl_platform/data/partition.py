"""Partitions of training data over workers: IID, label shards, and Dirichlet."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_platform.errors import UserError, unknown_name

Indices = NDArray[np.int64]
Assignment = tuple[Indices, Indices]
"""Sample indices, and for each the worker that owns it."""


@dataclass(frozen=True)
class Partition:
    """The samples of every worker, concatenated: worker i owns ``indices[offsets[i]:offsets[i + 1]]``."""

    indices: Indices
    offsets: Indices

    @property
    def num_workers(self) -> int:
        """Number of workers, N."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Indices:
        """Number of samples of every worker, n_i."""
        return np.diff(self.offsets)

    def pooled(self) -> "Partition":
        """The partition in which one worker has the samples of all."""
        return Partition(np.sort(self.indices), np.array([0, len(self.indices)], np.int64))

    def of(self, worker: int) -> Indices:
        """The sample indices of one worker."""
        return self.indices[self.offsets[worker] : self.offsets[worker + 1]]

    def class_counts(self, labels: ArrayLike, num_classes: int) -> Indices:
        """Number of samples per worker and class, [num_workers, num_classes]."""
        owners = np.repeat(np.arange(self.num_workers), self.sizes)
        cells = owners * num_classes + np.asarray(labels)[self.indices]
        return np.bincount(cells, minlength=self.num_workers * num_classes).reshape(self.num_workers, num_classes)


def make_partition(
    kind: str,
    labels: Indices,
    num_workers: int,
    rng: np.random.Generator,
    *,
    omega: float = 0.1,
    shards_per_worker: int = 2,
) -> Partition:
    """Assign every sample to one worker, at least two to each (BatchNorm cannot train on one).

    ``kind`` is dirichlet, iid or shards; ``omega`` and ``shards_per_worker`` are the parameters of the first and
    the last. Raises ``UserError`` if the kind is unknown or there are too few samples.
    """
    kinds: dict[str, Callable[[], Assignment]] = {
        "dirichlet": lambda: _assign_dirichlet(labels, num_workers, rng, omega),
        "iid": lambda: _assign_iid(labels, num_workers, rng),
        "shards": lambda: _assign_shards(labels, num_workers, rng, shards_per_worker),
    }
    if kind not in kinds:
        raise unknown_name("data.partition", kind, kinds)
    if not 1 <= num_workers <= len(labels) // 2:
        raise UserError(
            f"num_workers={num_workers} is not possible with {len(labels)} training samples: "
            f"each worker needs 2, so it must be between 1 and {len(labels) // 2}"
        )
    indices, owners = kinds[kind]()
    offsets = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=num_workers))))
    return Partition(indices[np.argsort(owners, kind="stable")], offsets)


def _assign_iid(labels: Indices, num_workers: int, rng: np.random.Generator) -> Assignment:
    """Shuffle the samples and cut them into parts whose sizes differ by at most one."""
    samples = len(labels)
    return rng.permutation(samples), np.arange(samples) * num_workers // samples


def _assign_shards(labels: Indices, num_workers: int, rng: np.random.Generator, shards_per_worker: int) -> Assignment:
    """Sort by label, cut into equal shards, and assign those at random (McMahan et al. 2017, section 3)."""
    samples, num_shards = len(labels), num_workers * shards_per_worker
    if num_shards > samples:
        raise UserError(
            f"data.shards_per_worker={shards_per_worker} with num_workers={num_workers} needs {num_shards} shards "
            f"of {samples} training samples; at most {samples // num_workers} shards per worker are possible"
        )
    owner_of_shard = rng.permutation(num_shards) // shards_per_worker
    return np.argsort(labels, kind="stable"), owner_of_shard[np.arange(samples) * num_shards // samples]


def _assign_dirichlet(labels: Indices, num_workers: int, rng: np.random.Generator, omega: float) -> Assignment:
    """Reserve two samples per worker, then split each class c by shares P_c ~ Dirichlet(omega 1_N)."""
    by_class = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    starts = np.cumsum(sizes) - sizes
    reserved, remaining = _reserve_two_each(by_class, starts, sizes, num_workers, rng)
    parts: list[Assignment] = [(reserved, np.tile(np.arange(num_workers), 2))]
    concentration = np.full(num_workers, min(omega, 1e12))  # shares are equal by then; numpy's sampler can overflow
    for start, size in zip(starts, remaining, strict=True):
        members = rng.permutation(by_class[start : start + size])
        edges = np.floor(np.cumsum(rng.dirichlet(concentration)) * size).astype(np.int64)
        edges[-1] = size
        counts = np.diff(np.minimum(edges, size), prepend=0)  # a sum of shares can exceed 1 by rounding
        parts.append((members, np.repeat(np.arange(num_workers), counts)))
    indices, owners = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return indices, owners


def _reserve_two_each(
    by_class: Indices, starts: Indices, sizes: Indices, num_workers: int, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Reserve two samples per worker: in two passes each draws a class uniformly and takes its last remaining sample.

    Returns the samples in the order they were drawn and the number remaining per class. Draws from a class that
    was already exhausted are repeated together among the remaining classes.
    """
    remaining = sizes.copy()
    taken = np.empty(2 * num_workers, np.int64)
    waiting = np.arange(2 * num_workers)
    while len(waiting):
        filled = np.flatnonzero(remaining)
        drawn = filled[rng.integers(len(filled), size=len(waiting))]
        order = np.argsort(drawn, kind="stable")
        counts = np.bincount(drawn, minlength=len(sizes))
        rank = np.empty_like(order)  # how many earlier draws chose the same class
        rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        is_served = rank < remaining[drawn]
        last = starts[drawn] + remaining[drawn] - 1 - rank
        taken[waiting[is_served]] = by_class[last[is_served]]
        remaining -= np.minimum(counts, remaining)
        waiting = waiting[~is_served]
    return taken, remaining
