"""Divisions that are given: by the owners of the samples, or by a file."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fl_platform.config.partition_file import read_split
from fl_platform.data import datasets
from fl_platform.data.partition import Assignment, Partitioner, key_of_data
from fl_platform.data.samples import Samples
from fl_platform.errors import UserError


@dataclass(frozen=True)
class Natural(Partitioner, name="natural"):
    """Each worker has the samples of one owner; with fewer workers than owners, of owners drawn by the seed.

    Owners with fewer than two samples cannot be workers.
    """

    def assign(self, train: Samples, num_workers: int, rng: np.random.Generator) -> Assignment:
        if train.owners is None:
            raise no_owners()
        owners = train.owners.numpy()
        count = train.num_owners
        sizes = np.bincount(owners, minlength=count)
        possible = np.flatnonzero(sizes >= 2)
        if num_workers > count:
            raise UserError(f"num_workers={num_workers} exceeds the {count} owners of data.partition=natural")
        if num_workers > len(possible):
            few = int(sizes.argmin())
            raise UserError(
                f"num_workers={num_workers} is not possible with data.partition=natural: a worker needs 2 training "
                f"samples, and owner {few} has {sizes[few]}; give num_workers={len(possible)} to leave such owners out"
            )
        chosen = possible
        if num_workers < len(possible):
            chosen = np.sort(rng.choice(possible, num_workers, replace=False))
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
    return UserError(
        "data.partition=natural needs samples with owners, and the data set has none: it gives them to "
        "Samples.from_arrays, as shakespeare and femnist do"
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
