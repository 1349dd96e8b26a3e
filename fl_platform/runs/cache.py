"""Parsed logs kept beside the logs, one Arrow file per log, valid while its size and modification time stay."""

import contextlib
import dataclasses
import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa

from fl_platform.config.migrate import upgraded
from fl_platform.runs import wandb_file
from fl_platform.runs.wandb_file import LoggedRun

_FORMAT = 2  # raise it when LoggedRun or the reader changes: older files are then read afresh
_CRC = 4  # bytes after the Arrow file, which itself checks nothing
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("source", "run_id", "entity", "project", "name", "group", "sweep", "host", "status"), str),
    **dict.fromkeys(("tags", "warnings"), list),
    **dict.fromkeys(("config", "summary"), dict),
    "started": int | float,
    "exit_code": int | None,
}
"""The fields of a ``LoggedRun`` but its history, as they come from JSON."""


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
        content = memoryview(place.read_bytes())
        if zlib.crc32(content[:-_CRC]).to_bytes(_CRC) != content[-_CRC:]:
            return None
        table = pa.ipc.open_file(pa.py_buffer(content[:-_CRC])).read_all()
        metadata = table.schema.metadata
        if metadata[b"key"].decode() != key:
            return None
        return from_values(json.loads(metadata[b"run"]), table.replace_schema_metadata(None))
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError):
        return None


def _save(place: Path, key: str, log: LoggedRun) -> None:
    table = log.history.replace_schema_metadata({"key": key, "run": json.dumps(to_values(log))})
    temporary = place.with_suffix(f".{os.getpid()}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        content = pa.BufferOutputStream()
        with pa.ipc.new_file(content, table.schema) as writer:
            writer.write_table(table)
        written = memoryview(content.getvalue())
        with open(temporary, "wb") as file:
            file.write(written)
            file.write(zlib.crc32(written).to_bytes(_CRC))
        os.replace(temporary, place)
    except OSError:  # read-only logs, full disk
        with contextlib.suppress(OSError):
            temporary.unlink()


def to_values(log: LoggedRun) -> dict[str, object]:
    """Everything but the history, ready for JSON."""
    return {field.name: getattr(log, field.name) for field in dataclasses.fields(LoggedRun) if field.name != "history"}


def from_values(values: dict[str, object], history: pa.Table) -> LoggedRun:
    """A run from what ``to_values`` made; ValueError for anything else."""
    if not isinstance(values, dict) or values.keys() != _KINDS.keys():
        raise ValueError("not the values of a run")
    for name, kind in _KINDS.items():
        if not isinstance(values[name], kind):
            raise ValueError(f"{name} is not a {kind}")
    for name in ("tags", "warnings"):
        values[name] = tuple(map(str, values[name]))  # type: ignore[call-overload]
    values["config"] = upgraded(values["config"])  # type: ignore[arg-type]
    return LoggedRun(**values, history=history)  # type: ignore[arg-type]
