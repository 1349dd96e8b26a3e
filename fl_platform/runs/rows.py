"""A live `rounds.jsonl`, read as it grows into columns of numbers."""

import json
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from fl_platform.runs import metrics

_NAN = float("nan")


class RowReader:
    """The rounds of one attempt so far. Lists, such as cohorts, are left on the disk: no curve is made of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0  # lines that are not JSON
        self._offset = 0
        self._count = 0
        self._columns: dict[str, array[float]] = {}

    def read(self) -> bool:
        """Take in complete new lines; true when there were some. A file that shrank is read afresh."""
        try:
            with open(self.path, "rb") as file:
                if file.seek(0, 2) < self._offset:
                    self._offset, self._count, self.damaged, self._columns = 0, 0, 0, {}
                file.seek(self._offset)
                complete = file.read().rpartition(b"\n")[0]
        except OSError:
            return False
        if not complete:
            return False
        self._offset += len(complete) + 1
        self._append(self._parse(complete))
        return True

    def _parse(self, text: bytes) -> list[dict[str, Any]]:
        """All lines in one call of the parser, which is far faster than one call each."""
        lines = [line for line in text.split(b"\n") if line.strip()]
        try:
            rows = orjson.loads(b"[" + b",".join(lines) + b"]")
        except ValueError:
            rows = [_one_row(line) for line in lines]
        good = [row for row in rows if isinstance(row, dict) and _is_number(row.get(metrics.ROUND))]
        self.damaged += len(lines) - len(good)
        return good

    def _append(self, rows: list[dict[str, Any]]) -> None:
        for name in dict.fromkeys(name for row in rows for name in row):
            values = [row.get(name) for row in rows]
            if not any(map(_is_number, values)):
                continue
            column = self._columns.setdefault(name, array("d", [_NAN]) * self._count)
            column.extend(_numbers(values))
        self._count += len(rows)
        for column in self._columns.values():
            column.extend([_NAN] * (self._count - len(column)))

    def last(self, name: str) -> float:
        """The newest value of a column; 0 where there is none."""
        column = self._columns.get(name)
        return column[-1] if column and column[-1] == column[-1] else 0.0

    def table(self) -> pa.Table:
        return pa.table({name: np.array(column) for name, column in self._columns.items()})


def _one_row(line: bytes) -> Any:
    """A line that orjson may have refused for a NaN, which other writers of JSON put down."""
    try:
        return json.loads(line, parse_int=float)  # an integer may be too large for a column
    except (ValueError, RecursionError):
        return None


def _numbers(values: list[Any]) -> "array[float]":
    try:
        return array("d", values)
    except (TypeError, OverflowError):
        return array("d", [float(value) if _is_number(value) else _NAN for value in values])


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
