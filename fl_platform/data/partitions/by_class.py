"""Divisions by label: k classes per worker, and the two kinds of Dirichlet shares."""

from dataclasses import dataclass

import numpy as np

from fl_platform.data.partition import Assignment, Indices, Partitioner, key_of_data
from fl_platform.data.samples import Samples
from fl_platform.errors import UserError


@dataclass(frozen=True)
class Classes(Partitioner, name="classes"):
    """Each worker has ``data.classes_per_worker`` classes; a class is divided evenly among those who have it.

    Every worker draws its classes among those that the fewest workers have so far, so that all classes are used and
    the numbers of their workers differ by at most one.
    """

    classes_per_worker: int = key_of_data()

    def assign(self, train: Samples, num_workers: int, rng: np.random.Generator) -> Assignment:
        labels = train.labels.numpy()
        present = np.unique(labels)
        wanted, count = self.classes_per_worker, len(present)
        if wanted > count or wanted * num_workers < count:
            raise UserError(
                f"data.classes_per_worker={wanted} with num_workers={num_workers} is not possible with {count} "
                f"classes: a worker has at least {-(-count // num_workers)} and at most {count} of them"
            )
        num_owners = np.zeros(count, np.int64)
        owners: list[list[int]] = [[] for _ in present]
        for worker in range(num_workers):
            for place in np.lexsort((rng.random(count), num_owners))[:wanted]:
                num_owners[place] += 1
                owners[place].append(worker)
        members = [rng.permutation(np.flatnonzero(labels == label)) for label in present]
        parts = zip(members, owners, strict=True)
        workers = [np.array(some)[np.arange(len(own)) * len(some) // len(own)] for own, some in parts]
        return np.concatenate(members), np.concatenate(workers)


@dataclass(frozen=True)
class DirichletWorkers(Partitioner, name="dirichlet_workers"):
    """Each worker draws its shares of classes P_i ~ Dirichlet(omega 1_C); sizes are equal (Acar et al. 2021).

    Their code fills workers one sample at a time and draws again where a class is used up. Here all workers draw what
    they lack at once; where a class has too few, chance decides who gets them, and the others draw among the classes
    that are left.
    """

    dirichlet_omega: float = key_of_data()

    def assign(self, train: Samples, num_workers: int, rng: np.random.Generator) -> Assignment:
        labels = train.labels.numpy()
        left = np.bincount(labels)
        concentration = np.full(len(left), min(self.dirichlet_omega, 1e12))
        priors = rng.dirichlet(concentration, size=num_workers)
        edges = np.arange(num_workers + 1) * len(labels) // num_workers
        counts = _fill(priors, np.diff(edges), left, rng)
        members = [rng.permutation(np.flatnonzero(labels == label)) for label in range(len(left))]
        workers = [np.repeat(np.arange(num_workers), counts[:, label]) for label in range(len(left))]
        return np.concatenate(members), np.concatenate(workers)


def _fill(priors: np.ndarray, lacking: Indices, left: Indices, rng: np.random.Generator) -> Indices:
    """Return counts [workers, classes] whose rows sum to ``lacking`` and whose columns sum to ``left``."""
    counts = np.zeros(priors.shape, np.int64)
    lacking, left = lacking.copy(), left.copy()
    while lacking.any():
        shares = np.where(left > 0, np.nan_to_num(priors), 0.0)
        total = shares.sum(axis=1, keepdims=True)
        even = (left > 0) / np.count_nonzero(left)
        shares = np.where(total > 1e-200, shares / np.maximum(total, 1e-200), even)
        wanted = rng.multinomial(lacking, shares)
        for label in np.flatnonzero(wanted.sum(axis=0) > left):
            wanted[:, label] = rng.multivariate_hypergeometric(wanted[:, label], left[label], method="marginals")
        counts += wanted
        lacking -= wanted.sum(axis=1)
        left -= wanted.sum(axis=0)
    return counts


@dataclass(frozen=True)
class Dirichlet(Partitioner, name="dirichlet"):
    """The paper's: two samples for each worker, then each class c split by shares P_c ~ Dirichlet(omega 1_N)."""

    dirichlet_omega: float = key_of_data()

    def assign(self, train: Samples, num_workers: int, rng: np.random.Generator) -> Assignment:
        labels = train.labels.numpy()
        by_class = np.argsort(labels, kind="stable")
        sizes = np.bincount(labels)
        starts = np.cumsum(sizes) - sizes
        reserved, remaining = _reserve_two_each(by_class, starts, sizes, num_workers, rng)
        parts: list[Assignment] = [(reserved, np.tile(np.arange(num_workers), 2))]
        omega = min(self.dirichlet_omega, 1e12)  # shares are equal by then; numpy's sampler can overflow
        for start, size in zip(starts, remaining, strict=True):
            members = rng.permutation(by_class[start : start + size])
            edges = np.floor(np.cumsum(rng.dirichlet(np.full(num_workers, omega))) * size).astype(np.int64)
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
