"""A part of every worker's data that it does not train on, to score models where the workers are."""

import numpy as np

from fl_platform import seeding
from fl_platform.data.partition import Indices, Partition
from fl_platform.data.samples import Samples, hold_out

LEAST = 2
"""Samples that a worker keeps for training (BatchNorm cannot train on one)."""


def split_worker_tests(
    partition: Partition, labels: Indices, fraction: float, seed: int, purpose: str = "worker_test"
) -> tuple[Partition, Partition]:
    """Take a fraction of every worker's samples out of its training data; returns (training, tests).

    Each class of a worker in proportion to its size. It depends on the seed and the worker's samples alone. A worker
    that would be left with fewer than two samples gives fewer; one that has none to give has no test.
    """
    kept, held = [], []
    for worker in range(partition.num_workers):
        own = partition.of(worker)
        count = max(0, min(round(fraction * len(own)), len(own) - LEAST))
        stays, leaves = hold_out(labels[own], count, seeding.generator(seed, purpose, worker))
        kept.append(own[stays])
        held.append(own[leaves])
    return joined(kept), joined(held)


def owner_tests(partition: Partition, train: Samples, test: Samples) -> Partition:
    """Each worker's part of the test set: the samples of the owner whose training samples it has.

    Without owners in both sets no worker has any, and neither has a worker with the samples of several owners.
    """
    if train.owners is None or test.owners is None:
        return joined([np.empty(0, np.int64) for _ in range(partition.num_workers)])
    of_samples, starts = train.owners.numpy()[partition.indices], partition.offsets[:-1]
    owners = np.maximum.reduceat(of_samples, starts)
    owners[np.minimum.reduceat(of_samples, starts) < owners] = -1
    order = np.argsort(test.owners.numpy(), kind="stable")
    places = np.searchsorted(test.owners.numpy()[order], [owners, owners + 1])
    return joined([order[first:last] for first, last in places.T])


def joined(parts: list[Indices]) -> Partition:
    """The partition in which worker i owns ``parts[i]``."""
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int64)
    return Partition(np.concatenate(parts).astype(np.int64), offsets)
