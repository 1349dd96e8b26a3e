"""The one reader of `rounds.jsonl`, a line of JSON per round, also while it grows."""

import json
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from fl_platform.config.regular_files import open_regular
from fl_platform.runs import metrics
from fl_platform.runs.record import LARGEST_ROUND, to_column

_NAN = float("nan")


class RowReader:
    """The rounds of one attempt so far, as columns of numbers.

    ``lists`` also keeps columns of lists (cohorts, accuracies by class), which take more memory than all others.
    """

    def __init__(self, *, lists: bool = False) -> None:
        self.path: Path | None = None
        self._lists = lists
        self._reset()

    def _reset(self) -> None:
        self.damaged = 0  # lines that are not JSON, or have no round
        self.latest: dict[str, Any] = {}  # the newest value of every key
        self._offset, self._newest = 0, b""  # bytes that were read, and the last line among them
        self._count = 0
        self._columns: dict[str, array[float]] = {}
        self._list_columns: dict[str, list[Any]] = {}

    def read(self, path: Path | None) -> bool:
        """Read complete new lines; returns whether there is news.

        Another file than last time, or one that was written anew as a resumed run does, is read from its start.
        """
        is_other = path != self.path
        if is_other:
            self.path = path
            self._reset()
        if path is None:
            return is_other
        try:
            with open_regular(path) as file:
                file.seek(self._offset - len(self._newest))
                is_anew = file.read(len(self._newest)) != self._newest
                if is_anew:
                    self._reset()
                    file.seek(0)
                complete = file.read().rpartition(b"\n")[0]
        except OSError:
            return is_other
        if complete:
            self._offset += len(complete) + 1
            self._newest = complete.rpartition(b"\n")[2] + b"\n"
            self._append(self._parse(complete))
        return is_other or is_anew or bool(complete)

    def _parse(self, text: bytes) -> list[dict[str, Any]]:
        """All lines in one call of the parser, which is far faster than one call each."""
        lines = [line for line in text.split(b"\n") if line.strip()]
        try:
            rows = orjson.loads(b"[" + b",".join(lines) + b"]")
        except ValueError:
            rows = [_one_row(line) for line in lines]
        good = [row for row in rows if isinstance(row, dict) and _is_round(row.get(metrics.ROUND))]
        self.damaged += len(lines) - len(good)
        return good

    def _append(self, rows: list[dict[str, Any]]) -> None:
        for name in dict.fromkeys(name for row in rows for name in row):
            values = [row.get(name) for row in rows]
            newest = next((value for value in reversed(values) if value is not None), None)
            if newest is not None:
                self.latest[name] = newest
            if any(map(_is_number, values)):
                column = self._columns.setdefault(name, array("d", [_NAN]) * self._count)
                column.extend(_numbers(values))
            elif self._lists and any(isinstance(value, list) for value in values):
                others = self._list_columns.setdefault(name, [None] * self._count)
                others.extend(values)
        self._count += len(rows)
        for column in self._columns.values():
            column.extend([_NAN] * (self._count - len(column)))
        for others in self._list_columns.values():
            others.extend([None] * (self._count - len(others)))

    def values(self, name: str | None) -> list[float]:
        """The finite values of a column, round by round; empty where there is no such column."""
        return [value for value in self._columns.get(name or "", ()) if value == value]

    def table(self) -> pa.Table:
        """All rows, a column per key in alphabetical order."""
        columns = {name: pa.array(np.array(column)) for name, column in self._columns.items()}
        columns |= {name: to_column(values) for name, values in self._list_columns.items() if name not in columns}
        return pa.table({name: columns[name] for name in sorted(columns)})


def _one_row(line: bytes) -> Any:
    """A line that orjson may have refused for a NaN, which other writers of JSON allow."""
    try:
        row = json.loads(line, parse_int=float)  # an integer may be too large for a column
        json.dumps(row, ensure_ascii=False).encode()  # half a character, which no column can be named
    except (ValueError, RecursionError):
        return None
    return row


def _numbers(values: list[Any]) -> "array[float]":
    try:
        return array("d", values)
    except (TypeError, OverflowError):
        return array("d", [float(value) if _is_number(value) else _NAN for value in values])


def _is_round(value: Any) -> bool:
    return _is_number(value) and abs(value) <= LARGEST_ROUND


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
