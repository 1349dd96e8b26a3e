"""Parsed logs kept beside the logs, one Arrow file per log, valid while its size and modification time stay."""

import contextlib
import dataclasses
import hashlib
import json
import os
from pathlib import Path

import pyarrow as pa

from fl_platform.tracking import wandb_file
from fl_platform.tracking.wandb_file import LoggedRun

_FORMAT = 1  # raise it when LoggedRun or the reader changes: older files are then read afresh
_SCALARS = [field.name for field in dataclasses.fields(LoggedRun) if field.name != "history"]


def read(path: Path, directory: Path | None = None) -> LoggedRun:
    """``wandb_file.read`` through the cache; a cache that cannot be read or written costs time, never an error."""
    place = (
        directory or default_directory(path)
    ) / f"{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]}.arrow"
    try:
        stat = path.stat()
    except OSError:
        return wandb_file.read(path)
    key = json.dumps([_FORMAT, str(path), stat.st_size, stat.st_mtime_ns])
    cached = _load(place, key)
    if cached is None:
        cached = wandb_file.read(path)
        _save(place, key, cached)
    return cached


def default_directory(path: Path) -> Path:
    """``<output.dir>/.cache`` for W&B's own layout ``<output.dir>/wandb/<run>/run-<id>.wandb``, else beside the log."""
    absolute = path.absolute()
    return (absolute.parents[2] if absolute.parent.parent.name == "wandb" else absolute.parent) / ".cache"


def _load(place: Path, key: str) -> LoggedRun | None:
    try:
        with pa.memory_map(str(place)) as file:
            table = pa.ipc.open_file(file).read_all()
        metadata = table.schema.metadata
        if metadata[b"key"].decode() != key:
            return None
        values = json.loads(metadata[b"run"])
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError):
        return None
    return from_values(values, table.replace_schema_metadata(None))


def _save(place: Path, key: str, log: LoggedRun) -> None:
    table = log.history.replace_schema_metadata({"key": key, "run": json.dumps(to_values(log))})
    temporary = place.with_suffix(f".{os.getpid()}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        os.replace(temporary, place)
    except OSError:  # read-only logs, full disk
        with contextlib.suppress(OSError):
            temporary.unlink()


def to_values(log: LoggedRun) -> dict[str, object]:
    """Everything but the history, ready for JSON."""
    return {name: getattr(log, name) for name in _SCALARS}


def from_values(values: dict[str, object], history: pa.Table) -> LoggedRun:
    for name in ("tags", "warnings"):
        values[name] = tuple(values[name])  # type: ignore[arg-type]
    return LoggedRun(**values, history=history)  # type: ignore[arg-type]
