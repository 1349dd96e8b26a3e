"""How training samples are divided among workers: the result, and the contract of the rules that make one."""

import dataclasses
import zlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from fl_platform.config.registry import PARTITIONS
from fl_platform.data.samples import Samples, shown_types, whole_numbers
from fl_platform.errors import UserError

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


def key_of_data() -> Any:
    """A field of a built-in rule whose value is the key of that name in ``data``."""
    return dataclasses.field(default=None, metadata={"help": "a key of data"})


class Partitioner:
    """A rule. ``class Mine(Partitioner, name="mine")``, a frozen dataclass, makes ``data.partition=mine`` available.

    Its fields are its parameters. Those of the built-in rules are keys of ``data``; a rule of a plugin declares its own
    with ``option(...)``, and they are given as ``data.partition_options.<field>=...``.
    """

    name: ClassVar[str] = ""

    def __init_subclass__(cls, name: str | None = None) -> None:
        super().__init_subclass__()
        if name is not None:
            cls.name = name
            PARTITIONS.add(name, cls, cls)

    def assign(self, train: Samples, num_workers: int, rng: np.random.Generator) -> Assignment:
        """Return indices of samples, each at most once, and the worker (0..num_workers - 1) of each.

        The order of a worker's samples is that of the indices. Raises UserError where the data cannot be divided so.
        """
        raise NotImplementedError


def checksums(rule: Partitioner, train: Samples) -> list[int]:
    """Checksums of the samples, to be taken before and after a rule of a plugin has seen them; none for our own."""
    if type(rule).__module__.startswith("fl_platform."):
        return []
    tensors = (train.features, train.labels, train.owners)
    return [zlib.crc32(tensor.contiguous().view(torch.uint8).numpy().data) for tensor in tensors if tensor is not None]


def make_partition(rule: Partitioner, train: Samples, num_workers: int, rng: np.random.Generator) -> Partition:
    """Divide samples among workers, at least two for each (BatchNorm cannot train on one).

    Raises ``UserError`` if there are too few samples, and for a rule that divides them otherwise than it may.
    """
    if not 1 <= num_workers <= len(train) // 2:
        raise UserError(
            f"num_workers={num_workers} is not possible with {len(train)} training samples: "
            f"each worker needs 2, so it must be between 1 and {len(train) // 2}"
        )
    about = f"data.partition={rule.name}"
    before = checksums(rule, train)
    assigned = rule.assign(train, num_workers, rng)
    if checksums(rule, train) != before:
        raise UserError(f"{about}: assign of {type(rule).__qualname__} wrote to the samples; it may only read them")
    if not (isinstance(assigned, tuple | list) and len(assigned) == 2):
        raise UserError(
            f"{about}: assign of {type(rule).__qualname__} must return indices and their workers, "
            f"not {shown_types(assigned)}"
        )
    indices = whole_numbers(f"{about}: indices", assigned[0])
    owners = whole_numbers(f"{about}: workers", assigned[1])
    if indices.shape != owners.shape or indices.ndim != 1:
        raise UserError(f"{about} gives {indices.shape} samples and {owners.shape} workers; one worker for each sample")
    for what, values, limit in (("sample", indices, len(train)), ("worker", owners, num_workers)):
        if len(values) and not 0 <= values.min() <= values.max() < limit:
            wrong = values.min() if values.min() < 0 else values.max()
            raise UserError(f"{about} gives {what} {wrong}; {what}s are 0..{limit - 1}")
    if np.bincount(indices, minlength=1).max() > 1:
        raise UserError(f"{about} gives sample {np.bincount(indices).argmax()} to more than one worker")
    sizes = np.bincount(owners, minlength=num_workers)
    if sizes.min() < 2:
        worker = int(sizes.argmin())
        raise UserError(
            f"{about} gives worker {worker} {sizes[worker]} of {len(train)} training samples; each worker needs 2: "
            "use fewer workers (num_workers) or a milder partition"
        )
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    return Partition(indices[np.argsort(owners, kind="stable")], offsets)
