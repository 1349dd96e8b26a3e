"""The rules by which training samples are divided among workers (``data.partition``)."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fl_platform.config.partition_file import read_split
from fl_platform.data import datasets
from fl_platform.data.partition import Assignment, Indices, Partitioner, key_of_data
from fl_platform.data.samples import Samples
from fl_platform.errors import UserError


@dataclass(frozen=True)
class Iid(Partitioner, name="iid"):
    """Shuffled and cut into parts whose sizes differ by at most one."""

    def assign(self, train: Samples, num_workers: int, rng: np.random.Generator) -> Assignment:
        samples = len(train)
        return rng.permutation(samples), np.arange(samples) * num_workers // samples


@dataclass(frozen=True)
class Shards(Partitioner, name="shards"):
    """Sorted by label, cut into equal shards, and those assigned at random (McMahan et al. 2017, section 3)."""

    shards_per_worker: int = key_of_data()

    def assign(self, train: Samples, num_workers: int, rng: np.random.Generator) -> Assignment:
        samples, num_shards = len(train), num_workers * self.shards_per_worker
        if num_shards > samples:
            raise UserError(
                f"data.shards_per_worker={self.shards_per_worker} with num_workers={num_workers} needs {num_shards} "
                f"shards of {samples} training samples; at most {samples // num_workers} shards per worker are possible"
            )
        owner_of_shard = rng.permutation(num_shards) // self.shards_per_worker
        order = np.argsort(train.labels.numpy(), kind="stable")
        return order, owner_of_shard[np.arange(samples) * num_shards // samples]


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
class Quantity(Partitioner, name="quantity"):
    """IID labels and unequal sizes: log-normal, or a power law of the worker's rank.

    Each worker has two samples, and the others are divided in proportion to exp(s z) with z standard normal, or to
    rank^-s with ranks in random order; s is ``data.quantity_spread``.
    """

    quantity_sizes: str = key_of_data()
    quantity_spread: float = key_of_data()

    def assign(self, train: Samples, num_workers: int, rng: np.random.Generator) -> Assignment:
        if self.quantity_sizes == "lognormal":
            exponents = self.quantity_spread * rng.standard_normal(num_workers)
        else:
            exponents = -self.quantity_spread * np.log(rng.permutation(num_workers) + 1)
        shares = np.exp(exponents - exponents.max())
        edges = np.rint(np.cumsum(shares / shares.sum()) * (len(train) - 2 * num_workers)).astype(np.int64)
        sizes = 2 + np.diff(edges, prepend=0)
        return rng.permutation(len(train)), np.repeat(np.arange(num_workers), sizes)


@dataclass(frozen=True)
class Natural(Partitioner, name="natural"):
    """Each worker has the samples of one owner; with fewer workers than owners, of owners drawn by the seed."""

    def assign(self, train: Samples, num_workers: int, rng: np.random.Generator) -> Assignment:
        if train.owners is None:
            raise no_owners()
        owners = train.owners.numpy()
        count = train.num_owners
        if num_workers > count:
            raise UserError(f"num_workers={num_workers} exceeds the {count} owners of data.partition=natural")
        chosen = np.arange(count)
        if num_workers < count:
            chosen = np.sort(rng.choice(count, num_workers, replace=False))
        worker_of = np.full(count, -1)
        worker_of[chosen] = np.arange(num_workers)
        workers = worker_of[owners]
        indices = np.flatnonzero(workers >= 0)
        return indices, workers[indices]

    @staticmethod
    def num_owners(name: str, root: str | None) -> int:
        """Return how many owners a data set has that does not say so itself: it is loaded for it."""
        return _num_owners(name, root)


def no_owners() -> UserError:
    """The error of a data set whose samples have no owners."""
    having = [name for name in datasets.names() if datasets.get(name).partition == "natural"]
    return UserError(
        "data.partition=natural needs samples with owners, and the data set has none; "
        f"sets with owners: {', '.join(having)}"
    )


@lru_cache(maxsize=16)
def _num_owners(name: str, root: str | None) -> int:
    train, _ = datasets.load(name, root)
    if train.owners is None:
        raise no_owners()
    return train.num_owners


@dataclass(frozen=True)
class File(Partitioner, name="file"):
    """As ``data.partition_file`` says, which ``data partition --save`` wrote."""

    partition_file: str = key_of_data()

    def assign(self, train: Samples, num_workers: int, rng: np.random.Generator) -> Assignment:
        split = read_split(self.partition_file)
        split.check_labels(train.labels.numpy(), self.partition_file)
        return split.indices, np.repeat(np.arange(split.num_workers), np.diff(split.offsets))


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
