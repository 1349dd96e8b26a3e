"""The compact archive `runs.parquet`: one row per run, every metric a list column; the same runs give the same bytes.

What tables are made of is exact. The rest is float32, and the per-round lists (cohorts, class accuracies) stay in
the logs: they would be half of the file. Runs that logged the accuracy of each worker keep these and their cohorts.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fl_platform.config.regular_files import check_regular
from fl_platform.errors import UserError
from fl_platform.runs import formats, metrics
from fl_platform.runs.record import RunRecord, from_values, to_values

_HEADER = "run"  # JSON of everything but the history
_COLUMNS = "columns"  # names once more: pages have checksums, the part of a Parquet file that names columns has none
_FORMAT = "format"  # archives of release 0.1.0 have none
_FEW_VALUES = {metrics.TEST_ACCURACY, metrics.TOP_ACCURACY}  # multiples of one over the test set: a dictionary is best
_LISTS = (metrics.EACH_WORKER, metrics.COHORT)  # what forgetting by worker is made of
_EXACT = {metrics.TEST_ACCURACY, metrics.FORGETTING, metrics.TOTAL_BYTES, metrics.TOTAL_SECONDS}


def write(records: Iterable[RunRecord], path: Path) -> None:
    """Write merged records, in the order of their ids."""
    ordered = sorted(records, key=lambda record: record.run_id)
    columns = {_HEADER: pa.array([_header(record) for record in ordered], pa.string())}
    kinds = _kinds(ordered)
    for name, kind in sorted(kinds.items()):
        columns[name] = pa.array([_column(record, name) for record in ordered], pa.list_(kind))
    lists = [name for name in _LISTS if name not in kinds and any(map(_has_workers, ordered))]
    for name in lists:
        found = [_column(record, name) if _has_workers(record) else None for record in ordered]
        columns[name] = pa.array(found, pa.list_(pa.list_(pa.float32())))
    # bytes of equal rank side by side: exponents resemble each other, and the file is a third smaller
    by_bytes = {name for name, kind in kinds.items() if pa.types.is_floating(kind)} - _FEW_VALUES
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {_COLUMNS: json.dumps(list(columns)), _FORMAT: str(formats.ARCHIVE)}
    table = pa.table(columns).replace_schema_metadata(about)
    try:
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            compression_level=12,
            row_group_size=256,
            use_dictionary=[_stored(name, name in lists) for name in columns if name not in by_bytes],
            use_byte_stream_split=[_stored(name) for name in by_bytes],
            write_page_checksum=True,
            write_statistics=False,
        )
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _stored(name: str, is_nested: bool = False) -> str:
    """What Parquet calls the values of a column."""
    return name if name == _HEADER else f"{name}.list.element{'.list.element' if is_nested else ''}"


def _kinds(records: list[RunRecord]) -> dict[str, pa.DataType]:
    """The stored type of every metric that is a number in all runs."""
    found = {column.name: set[pa.DataType]() for record in records for column in record.history.schema}
    for record in records:
        for column in record.history.schema:
            found[column.name].add(column.type)
    numbers = [name for name, kinds in found.items() if all(map(pa.types.is_primitive, kinds))]
    narrow = {name: pa.float64() if name in _EXACT else pa.float32() for name in numbers}
    return narrow | {metrics.ROUND: pa.int64()} if metrics.ROUND in narrow else narrow


def _header(record: RunRecord) -> str:
    values = to_values(record)
    values["source"] = f"{record.run_id} in an archive"  # a path of the machine that wrote it would change the bytes
    places = [warning.partition(": ") for warning in record.warnings]
    values["warnings"] = [f"{Path(place).name}{colon}{text}" for place, colon, text in places]
    return json.dumps(values, sort_keys=True)


def _has_workers(record: RunRecord) -> bool:
    """Whether a run logged the accuracy of each worker."""
    schema = record.history.schema
    return all(name in schema.names and schema.field(name).type == pa.list_(pa.float64()) for name in _LISTS)


def _column(record: RunRecord, name: str) -> list[object] | None:
    values: list[object] | None = record.history[name].to_pylist() if name in record.history.column_names else None
    return values


def read(path: Path) -> list[RunRecord]:
    """The runs of an archive; UserError for one that is damaged, as a whole, and for one of a newer format."""
    try:
        check_regular(path)
        about = pq.read_schema(path).metadata or {}
        formats.check_format(f"the archive {path}", int(about.get(_FORMAT.encode(), 1)), formats.ARCHIVE)
        table = pq.read_table(path, page_checksum_verification=True)
        table.validate(full=True)
        named = about.get(_COLUMNS.encode())  # archives of earlier versions have none
        if named is not None and json.loads(named) != table.column_names:
            raise ValueError("columns were renamed")
        return [_run(table, index) for index in range(table.num_rows)]
    except formats.FormatError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError, MemoryError):
        raise UserError(f"source {path} is neither a W&B log nor an archive of runs, or it is damaged") from None


def _run(table: pa.Table, index: int) -> RunRecord:
    present = {name: table[name][index] for name in table.column_names if name != _HEADER}
    columns = {name: _wide(scalar.values) for name, scalar in present.items() if scalar.is_valid}
    return from_values(json.loads(table[_HEADER][index].as_py()), pa.table(columns))


def _wide(values: pa.Array) -> pa.Array:
    if pa.types.is_list(values.type):
        return values.cast(pa.list_(pa.float64()))
    return values.cast(pa.float64()) if pa.types.is_floating(values.type) else values
