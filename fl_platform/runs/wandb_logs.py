"""Import of W&B's offline logs (`run-<id>.wandb`), for runs without a directory; needs neither wandb nor a network.

The file is a LevelDB log: a 7-byte header, then 32 KiB blocks of (CRC32, length, type, payload) whose joined
payloads are protobuf records. Only the few fields named in ``_MESSAGES`` are decoded.
"""

import dataclasses
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from fl_platform.config.migrate import upgraded
from fl_platform.config.regular_files import open_regular
from fl_platform.errors import UserError
from fl_platform.runs import cache, liveness, metrics
from fl_platform.runs.record import RunRecord, to_column
from fl_platform.runs.status import RunStatus

_MAGIC = b":W&B"
_FILE_HEADER = 7
_BLOCK = 32768
_CHUNK_HEADER = struct.Struct("<IHB")  # crc32 of type and payload, payload length, type
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_TYPE_CRC = [zlib.crc32(bytes([kind])) for kind in range(5)]

# (name, number, type); a repeated field's type starts with "*". Numbers as in wandb's own protobuf schema, which
# may only ever add to them; declaring them here saves the 0.7 s that importing wandb takes.
_MESSAGES: dict[str, tuple[tuple[str, int, str], ...]] = {
    "Item": (("key", 1, "string"), ("nested_key", 2, "*string"), ("value_json", 16, "string")),
    "History": (("item", 1, "*Item"),),
    "Changes": (("update", 1, "*Item"), ("remove", 2, "*Item")),
    "Time": (("seconds", 1, "int64"), ("nanos", 2, "int32")),
    "Exit": (("exit_code", 1, "int32"), ("runtime", 2, "int32")),
    "Run": (
        ("run_id", 1, "string"),
        ("entity", 2, "string"),
        ("project", 3, "string"),
        ("config", 4, "Changes"),
        ("summary", 5, "Changes"),
        ("run_group", 6, "string"),
        ("display_name", 8, "string"),
        ("tags", 10, "*string"),
        ("sweep_id", 12, "string"),
        ("host", 13, "string"),
        ("start_time", 17, "Time"),
    ),
    "Record": (
        ("history", 2, "History"),
        ("summary", 3, "Changes"),
        ("config", 5, "Changes"),
        ("run", 17, "Run"),
        ("exit", 18, "Exit"),
    ),
}


def _record_class() -> Any:
    """The protobuf class of one record, built from ``_MESSAGES`` in a pool of its own."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="offline_log.proto", package="offline_log", syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, number, kind in fields:
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            declared = message.field.add(name=name, number=number, label=label)
            kind = kind.lstrip("*")
            if kind in _MESSAGES:
                declared.type, declared.type_name = kinds.TYPE_MESSAGE, f".offline_log.{kind}"
            else:
                declared.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("offline_log.Record"))


_Record = _record_class()


def read_with_status(path: Path, cache_dir: Path | None = None) -> RunRecord:
    """The run of a log, through the cache, with how it stands now; UserError for a file that is no log."""
    place = cache.place_of(path, cache_dir or default_cache(path))
    try:
        stat = path.stat()
    except OSError:
        return with_status(read(path))
    key = cache.key_of([stat.st_size, stat.st_mtime_ns])
    record = cache.load(place, key, str(path))
    if record is None:
        record = read(path)
        cache.save(place, key, record)
    return with_status(record)


def default_cache(path: Path) -> Path:
    """``<output.dir>/.cache`` for W&B's own layout ``<output.dir>/wandb/<run>/run-<id>.wandb``, else beside the log."""
    absolute = path.absolute()
    return (absolute.parents[2] if absolute.parent.parent.name == "wandb" else absolute.parent) / cache.NAME


def with_status(record: RunRecord) -> RunRecord:
    """A record as ``read`` made it, with the status it has now: the process that writes a log may still run."""
    return dataclasses.replace(record, status=_status_of(record))


def _status_of(record: RunRecord) -> RunStatus:
    if record.exit_code is None:
        alive = liveness.is_log_written(Path(record.source), record.host)
        return RunStatus.RUNNING if alive else RunStatus.CRASHED
    return ended_status(record.exit_code, record.summary)


def ended_status(exit_code: int, summary: dict[str, Any]) -> RunStatus:
    """How a run ended, from the exit code and summary that W&B has."""
    default = RunStatus.FINISHED if exit_code == 0 else RunStatus.CRASHED
    recorded = RunStatus.parse(summary.get(metrics.STATUS, default))
    return RunStatus.CRASHED if recorded in (None, RunStatus.RUNNING) else recorded


def exit_code(path: Path) -> int | None:
    """The exit code at the end of a log, None where it has no end yet; rounds are not read. UserError as ``read``."""
    codes = [record.exit.exit_code for record in _records(path, []) if record.HasField("exit")]
    return codes[-1] if codes else None


def read(path: Path) -> RunRecord:
    """Parse one log. Its status stays open; what is damaged is left out and named in ``warnings``.

    Raises UserError for a file that cannot be read or is no log.
    """
    damage: list[str] = []
    header: dict[str, Any] = {}
    config: dict[str | tuple[str, ...], str] = {}
    summary: dict[str | tuple[str, ...], str] = {}
    rows: list[Any] = []
    for record in _records(path, damage):
        if record.HasField("history"):
            rows.append(record.history.item)
        elif record.HasField("summary"):
            _apply(record.summary, summary)
        elif record.HasField("config"):
            _apply(record.config, config)
        elif record.HasField("run"):
            header |= _run_header(record.run)
            _apply(record.run.config, config)
            _apply(record.run.summary, summary)
        elif record.HasField("exit"):
            header["exit_code"] = record.exit.exit_code
    history = without_media(_columns(rows, damage))
    values = {"config": _nested(config, damage), "summary": _nested(summary, damage), "history": history}
    values["summary"] = {name: value for name, value in values["summary"].items() if not is_media(name)}
    values["config"].pop("_wandb", None)
    values["config"] = upgraded(values["config"])
    header.setdefault("run_id", path.stem.removeprefix("run-"))
    return RunRecord(
        source=str(path), **header, **values, warnings=tuple(f"{path}: {text}" for text in _counted(damage))
    )


def _records(path: Path, damage: list[str]) -> Iterator[Any]:
    """The records of a log that are whole; what is wrong with others is added to ``damage``. UserError as ``read``."""
    try:
        with open_regular(path) as file:
            data = file.read()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if data[: len(_MAGIC)] != _MAGIC[: len(data)]:  # a log may end after its first byte
        raise UserError(f"{path} is not a W&B log: it does not start with {_MAGIC.decode()}")
    for payload in _payloads(data, damage):
        try:
            yield _Record.FromString(payload)
        except DecodeError:
            damage.append("a record is damaged")


def is_media(name: str) -> bool:
    """Whether a logged key is a table or picture for W&B rather than a number of a round."""
    return name.startswith(metrics.MEDIA)


def without_media(history: pa.Table) -> pa.Table:
    """The history without the columns of tables and pictures."""
    return history.select([name for name in history.column_names if not is_media(name)])


def _payloads(data: bytes, damage: list[str]) -> Iterator[bytes]:
    """Record payloads in order. A chunk that fails its CRC costs that record; a bad length costs the block."""
    offset, end = _FILE_HEADER, len(data)
    parts: list[bytes] = []
    while offset + _CHUNK_HEADER.size <= end:
        block_end = min((offset // _BLOCK + 1) * _BLOCK, end)
        if block_end - offset < _CHUNK_HEADER.size:  # zero padding at the end of a block
            offset = block_end
            continue
        crc, length, kind = _CHUNK_HEADER.unpack_from(data, offset)
        start = offset + _CHUNK_HEADER.size
        stop = start + length
        if stop > block_end:
            damage.append("it ends in the middle of a record" if block_end == end else "a block is damaged")
            parts, offset = [], block_end
            continue
        offset = stop
        chunk = data[start:stop]
        if not _FULL <= kind <= _LAST or zlib.crc32(chunk, _TYPE_CRC[kind]) != crc:
            damage.append("a record is damaged")
            parts = []
        elif kind == _FULL:
            parts = []
            yield chunk
        elif kind == _FIRST:
            parts = [chunk]
        elif parts:
            parts.append(chunk)
            if kind == _LAST:
                yield b"".join(parts)
                parts = []
    if parts or 0 < end - offset < _CHUNK_HEADER.size or 0 < end < _FILE_HEADER:
        damage.append("it ends in the middle of a record")


def _counted(damage: list[str]) -> Iterator[str]:
    for text in dict.fromkeys(damage):
        count = damage.count(text)
        yield text if count == 1 else f"{text} ({count} times)"


def _run_header(run: Any) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "entity": run.entity,
        "project": run.project,
        "name": run.display_name,
        "group": run.run_group,
        "sweep": run.sweep_id,
        "tags": tuple(run.tags),
        "host": run.host,
        "started": run.start_time.seconds + run.start_time.nanos / 1e9,
    }


def _apply(changes: Any, texts: dict[str | tuple[str, ...], str]) -> None:
    """Keep the newest JSON text of every key; it is parsed once, at the end."""
    for item in changes.update:
        path = item.nested_key
        texts[path[0] if len(path) == 1 else tuple(path) or item.key] = item.value_json
    for item in changes.remove:
        path = item.nested_key
        texts.pop(path[0] if len(path) == 1 else tuple(path) or item.key, None)


def _nested(texts: dict[str | tuple[str, ...], str], damage: list[str]) -> dict[str, Any]:
    values = _parse_texts(list(texts.values()), "config or summary", damage)
    result: dict[str, Any] = {}
    for key, value in zip(texts, values, strict=True):
        path = (key,) if isinstance(key, str) else key
        place = result
        for name in path[:-1]:
            inner = place.get(name)
            if not isinstance(inner, dict):
                inner = place[name] = {}
            place = inner
        place[path[-1]] = value
    return result


def _parse_texts(texts: list[str], what: str, damage: list[str]) -> list[Any]:
    """All values in one call of the JSON parser: ten times faster than one call each."""
    try:
        values = json.loads(f"[{','.join(texts)}]")
        if len(values) == len(texts):
            return list(values)
    except (ValueError, RecursionError):
        pass
    return [_parse_text(text, what, damage) for text in texts]


def _parse_text(text: str, what: str, damage: list[str]) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        damage.append(f"a value of {what} is not JSON")
        return None


def _columns(rows: list[Any], damage: list[str]) -> pa.Table:
    places: dict[str, tuple[list[int], list[str]]] = {}
    for index, items in enumerate(rows):
        for item in items:
            path = item.nested_key
            name = item.key if not path else path[0] if len(path) == 1 else ".".join(path)
            place = places.get(name)
            if place is None:
                place = places[name] = ([], [])
            place[0].append(index)
            place[1].append(item.value_json)
    columns = {}
    for name, (indices, texts) in sorted(places.items()):
        values = _parse_texts(texts, f"'{name}'", damage)
        if len(values) < len(rows):
            dense: list[Any] = [None] * len(rows)
            for index, value in zip(indices, values, strict=True):
                dense[index] = value
            values = dense
        columns[name] = to_column(values)
    return pa.table(columns)
