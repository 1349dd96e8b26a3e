"""A division of training samples among workers as a file (JSON or Parquet), so that others can use exactly the same."""

import hashlib
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_platform.config.regular_files import check_regular, read_regular
from fl_platform.errors import UserError, cannot_write

Indices = NDArray[np.int64]
FORMAT = "fl_platform partition 1"
SUFFIXES = (".json", ".parquet")
LARGEST = 1_000_000_000  # bytes


@dataclass(frozen=True)
class Split:
    """Worker i has the training samples ``indices[offsets[i]:offsets[i + 1]]``, in this order.

    ``data`` and ``about`` say what it was made from, for people; ``labels_sha256`` says of which samples it is.
    """

    data: str
    about: str
    labels_sha256: str
    indices: Indices
    offsets: Indices

    @property
    def num_workers(self) -> int:
        return len(self.offsets) - 1

    @property
    def sha256(self) -> str:
        """Of the content: which samples, and which worker has which; the same for both formats."""
        content = hashlib.sha256(self.labels_sha256.encode())
        for values in (self.offsets, self.indices):
            content.update(values.astype("<i8").tobytes())
        return content.hexdigest()

    def check_labels(self, labels: Indices, path: str) -> None:
        """Raise UserError unless the split is of samples with these labels."""
        if labels_sha256(labels) != self.labels_sha256:
            raise UserError(
                f"data.partition_file={path} divides the training samples of {self.data} ({self.about}), and these "
                f"{len(labels)} are others; data.name, data.validation_fraction and its seed must be as they were"
            )


def labels_sha256(labels: Indices) -> str:
    """The digest by which a split knows its samples."""
    return hashlib.sha256(np.ascontiguousarray(labels).astype("<i8").tobytes()).hexdigest()


def write_split(split: Split, path: Path) -> None:
    """Write a file whose suffix says the format; UserError for another suffix, and where it cannot be written."""
    check_suffix(path, f"--save {path}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            path.write_text(json.dumps(_to_json(split)) + "\n", encoding="utf-8")
        else:
            _write_parquet(split, path)
    except OSError as error:
        raise cannot_write(f"--save {path}", error) from None


def check_suffix(path: Path, source: str) -> None:
    """Raise UserError unless a path ends as one of the formats does."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"{source}: the file must end in {' or '.join(SUFFIXES)}, not in '{path.suffix}'")


def read_split(path: str) -> Split:
    """Read and check a file; UserError, in one sentence, for one that is missing, damaged or of another kind."""
    source = f"data.partition_file={path}"
    file = Path(path).expanduser()
    check_suffix(file, source)
    try:
        check_regular(file, LARGEST)
        split = _from_json(file) if file.suffix == ".json" else _from_parquet(file)
    except FileNotFoundError:
        raise UserError(f"{source}: no such file") from None
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise UserError(f"{source} cannot be read: {' '.join(str(error).split())[:200]}") from None
    if fault := _fault(split):
        raise UserError(f"{source} is damaged: {fault}")
    return split


def _fault(split: Split) -> str | None:
    sizes = np.diff(split.offsets)
    if not len(sizes) or sizes.min() < 2:
        return f"worker {int(sizes.argmin()) if len(sizes) else 0} has fewer than 2 samples"
    if split.indices.min() < 0:
        return f"sample {split.indices.min()} is negative"
    if len(np.unique(split.indices)) < len(split.indices):
        return "a sample has two workers"
    return None


def _to_json(split: Split) -> dict[str, Any]:
    edges = split.offsets.tolist()
    workers = [split.indices[start:stop].tolist() for start, stop in pairwise(edges)]
    return {"format": FORMAT, **_about(split), "workers": workers}


def _about(split: Split) -> dict[str, str]:
    return {"data": split.data, "about": split.about, "labels_sha256": split.labels_sha256}


def _from_json(file: Path) -> Split:
    found = json.loads(read_regular(file, LARGEST))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"it does not say 'format': '{FORMAT}'")
    workers = [np.asarray(samples) for samples in found["workers"]]
    if not workers or any(samples.ndim != 1 or samples.dtype.kind != "i" for samples in workers):
        raise ValueError("'workers' is not a list of lists of sample numbers")
    offsets = np.concatenate(([0], np.cumsum([len(samples) for samples in workers])))
    return _split(found, np.concatenate(workers), offsets)


def _split(about: Any, indices: Indices, offsets: Indices) -> Split:
    data, text, labels = (str(about[name]) for name in ("data", "about", "labels_sha256"))
    return Split(data, text, labels, indices.astype(np.int64), offsets.astype(np.int64))


def _write_parquet(split: Split, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    workers = np.repeat(np.arange(split.num_workers), np.diff(split.offsets))
    table = pa.table({"worker": workers, "sample": split.indices})
    pq.write_table(table.replace_schema_metadata({"format": FORMAT, **_about(split)}), path)


def _from_parquet(file: Path) -> Split:
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    about = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    if about.get("format") != FORMAT or table.column_names != ["worker", "sample"]:
        raise ValueError(f"it does not say '{FORMAT}' or has other columns than worker and sample")
    workers, samples = (np.asarray(table[name].to_numpy(), np.int64) for name in table.column_names)
    if len(workers) and (workers.min() < 0 or (np.diff(workers) < 0).any()):
        raise ValueError("its rows are not ordered by worker")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(workers))))
    return _split(about, samples, offsets)
