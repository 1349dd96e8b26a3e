"""Parsed runs kept beside their files, one Arrow file each, valid while the files' sizes and times stay."""

import contextlib
import dataclasses
import hashlib
import json
import os
import zlib
from pathlib import Path

import pyarrow as pa

from fl_platform.config.regular_files import check_regular
from fl_platform.runs.record import RunRecord, from_values, to_values

NAME = ".cache"
_FORMAT = 4  # raise it when RunRecord or a reader changes: older files are then read afresh
_CRC = 4  # bytes after the Arrow file, which itself checks nothing


def place_of(path: Path, directory: Path) -> Path:
    """The file in a cache directory that belongs to a log or run directory."""
    return directory / f"{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]}.arrow"


def of_runs(path: Path, cache_dir: Path | None) -> Path:
    """The cache directory that a run directory is kept in: ``cache_dir``, or one beside the run."""
    return cache_dir or path.absolute().parent / NAME


def key_of(stamps: object) -> str:
    """What a kept record must have been saved under to be valid: the format, and stamps of the files."""
    return json.dumps([_FORMAT, stamps])


def load(place: Path, key: str, source: str | None = None) -> RunRecord | None:
    """The record kept under ``key``; None where there is none, or a damaged one.

    ``source`` is how the path of the run is spelled now, which the record then has; None also where the record has
    warnings, which name the path as it was spelled.
    """
    try:
        content = _content(place)
        if zlib.crc32(content[:-_CRC]).to_bytes(_CRC) != content[-_CRC:]:
            return None
        table = pa.ipc.open_file(pa.py_buffer(content[:-_CRC])).read_all()
        metadata = table.schema.metadata
        if metadata[b"key"].decode() != key:
            return None
        record = from_values(json.loads(metadata[b"run"]), table.replace_schema_metadata(None))
        if source is None or record.source == source:
            return record
        return None if record.warnings else dataclasses.replace(record, source=source)
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError):
        return None


def _content(place: Path) -> memoryview:
    """A file of the cache, mapped: to read thousands of them, memory for a copy takes longer than the copying.

    What is mapped stays as it is, since files are replaced and never changed.
    """
    check_regular(place)
    try:
        with pa.memory_map(os.fspath(place)) as file:
            mapped = file.read_buffer()
    except OSError:  # more files than a process may map
        return memoryview(place.read_bytes())
    return memoryview(mapped).cast("B")


def save(place: Path, key: str, record: RunRecord) -> None:
    """Keep a record; a cache that cannot be written costs time, never an error."""
    table = record.history.replace_schema_metadata({"key": key, "run": json.dumps(to_values(record))})
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
    except OSError:  # a read-only directory, a full disk
        with contextlib.suppress(OSError):
            temporary.unlink()
