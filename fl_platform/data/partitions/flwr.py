"""Divisions by the partitioners of the package flwr-datasets (Flower), where it is installed.

A partitioner is given a table with one row per training sample: its number (``sample``), its ``label``, its ``owner``
where samples have one, and for tables of numbers their columns, ``column_0`` and so on. What it returns for a part are
rows of that table, from which the numbers of the samples are read.
"""

import contextlib
import inspect
import io
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from fl_platform.config.options import option
from fl_platform.data.partition import Assignment, Partitioner
from fl_platform.data.samples import Samples
from fl_platform.errors import UserError, did_you_mean, unknown_name

KEY = "data.partition_options"
NOT_OF_SAMPLES = ("IdToSizeFncPartitioner", "Partitioner", "VerticalEvenPartitioner", "VerticalSizePartitioner")
"""They divide columns, need a function as an argument, or are no rule of their own."""


@dataclass(frozen=True)
class Flwr(Partitioner, name="flwr"):
    """A partitioner of the package flwr-datasets, by the name of its class and with its own arguments.

    ``num_partitions`` is ``num_workers``, ``seed`` follows the run's, and ``partition_by`` is ``label`` (``owner`` for
    partitioners of natural ids), unless given.
    """

    partitioner: str = option("", "class of flwr_datasets.partitioner, such as DirichletPartitioner")
    arguments: dict[str, Any] = option({}, "its arguments by name, such as arguments.alpha=0.5")

    def assign(self, train: Samples, num_workers: int, rng: np.random.Generator) -> Assignment:
        about = f"{KEY}.partitioner={self.partitioner}"
        kind = _class(self.partitioner)
        arguments = _arguments(kind, self.arguments, num_workers, int(rng.integers(2**31)))
        table = _table(train)
        if (column := arguments.get("partition_by", "label")) not in table.column_names:
            raise UserError(f"{KEY}.arguments.partition_by={column}: there is no such column; {_columns(table)}")
        try:
            with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():  # a progress bar
                warnings.simplefilter("ignore", FutureWarning)  # of pyarrow, about how the package calls it
                made = kind(**arguments)
                made.dataset = table
                parts = [np.asarray(made.load_partition(i)["sample"], np.int64) for i in range(made.num_partitions)]
        except Exception as error:  # noqa: BLE001  the package's own complaints have any type
            raise UserError(f"{about} does not divide these samples: {_one_line(error)}") from None
        if len(parts) != num_workers:
            raise UserError(
                f"{about} makes {len(parts)} parts, and num_workers={num_workers}; give num_workers={len(parts)}"
            )
        return np.concatenate(parts), np.repeat(np.arange(num_workers), [len(part) for part in parts])


def _class(name: str) -> type[Any]:
    """The partitioner of this name; UserError where there is none, or none that divides samples."""
    if find_spec("flwr_datasets") is None:
        raise UserError(
            "data.partition=flwr needs the package flwr-datasets; install it with pip install flwr-datasets"
        )
    import flwr_datasets.partitioner as package

    known = [one for one in package.__all__ if one not in NOT_OF_SAMPLES]
    if name in NOT_OF_SAMPLES:
        raise UserError(
            f"{KEY}.partitioner={name} cannot be used: it divides columns, needs a function, or is abstract; "
            f"allowed: {', '.join(known)}"
        )
    if name not in known:
        raise unknown_name(f"{KEY}.partitioner", name, known)
    kind: type[Any] = getattr(package, name)
    return kind


def _arguments(kind: type[Any], given: dict[str, Any], num_workers: int, seed: int) -> dict[str, Any]:
    """All arguments of a partitioner: given, or filled in; UserError for one that it does not have, or lacks."""
    accepted = dict(inspect.signature(kind).parameters)
    if "num_partitions" in given:
        raise UserError(f"{KEY}.arguments.num_partitions={given['num_partitions']}: give num_workers instead")
    for name in given:
        if name not in accepted:
            raise UserError(
                f"{KEY}.arguments.{name}={given[name]}: {kind.__name__} has no such argument; "
                f"it has {', '.join(accepted) or 'none'}{did_you_mean(name, accepted)}"
            )
    by = "owner" if "NaturalId" in kind.__name__ else "label"
    filled = {"num_partitions": num_workers, "seed": seed, "partition_by": by}
    values = {name: value for name, value in filled.items() if name in accepted} | given
    lacking = [name for name, one in accepted.items() if one.default is one.empty and name not in values]
    if lacking:
        raise UserError(f"{KEY}.partitioner={kind.__name__} needs {KEY}.arguments.{lacking[0]}=...")
    if "distribution_array" in values:
        values["distribution_array"] = np.asarray(values["distribution_array"])
    return values


def _table(train: Samples) -> Any:
    """What partitioners are given: a table of the package ``datasets``, in memory."""
    import datasets

    columns: dict[str, Any] = {"sample": np.arange(len(train)), "label": train.labels.numpy()}
    if train.owners is not None:
        columns["owner"] = train.owners.numpy()
    if train.features.is_floating_point() and train.features.ndim == 2:
        columns |= {f"column_{place}": values for place, values in enumerate(train.features.numpy().T)}
    return datasets.Dataset.from_dict(columns)


def _columns(table: Any) -> str:
    names = [name for name in table.column_names if not name.startswith("column_")]
    numbers = len(table.column_names) - len(names)
    return f"there are {', '.join(names)}" + (f" and column_0 to column_{numbers - 1}" if numbers else "")


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
