"""Divisions by numbers of samples: equal parts, shards of sorted labels, and unequal sizes."""

from dataclasses import dataclass

import numpy as np

from fl_platform.data.partition import Assignment, Partitioner, key_of_data
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
