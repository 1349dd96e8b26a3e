"""The rows of a run so far, in memory that does not grow: all but the newest lie in files beside the checkpoints.

A file is named by its rounds and its content, `rows-<first>-<last>-<digest>.jsonl.gz`. A checkpoint holds the newest
rows and the names of the files, so that saving one takes the same time in every round.
"""

import gzip
import hashlib
import itertools
import json
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from fl_platform.errors import UserError
from fl_platform.runs import metrics
from fl_platform.runs.directory import rounds_file
from fl_platform.runs.writing import write_atomically

ROWS_PER_FILE = 1000
Row = dict[str, Any]
_NAME = re.compile(r"rows-([0-9]{1,9})-([0-9]{1,9})-([0-9a-f]{16})\.jsonl\.gz")


class History(Sequence[Row]):
    """The rows of rounds 1, 2, ... of a run.

    Without a ``directory`` all rows stay in memory. Of several ranks the first one ``writes``; on the others, rows
    that have left the memory cannot be read again.
    """

    def __init__(self, directory: Path | None = None, *, writes: bool = True) -> None:
        self._directory, self._writes = directory, writes
        self._files: list[Path] = []
        self._newest: list[Row] = []
        self._num_earlier = 0  # rows in the files

    @property
    def is_in_memory(self) -> bool:
        return not self._files

    def __len__(self) -> int:
        return self._num_earlier + len(self._newest)

    def __iter__(self) -> Iterator[Row]:
        earlier = (json.loads(line) for path in self._files for line in _lines(path))
        return itertools.chain(earlier, list(self._newest))

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, int) and -len(self._newest) <= index < 0:
            return self._newest[index]
        return list(self)[index]

    def append(self, row: Row) -> None:
        """Add the row of a round; the oldest in memory are written to a file when there are many."""
        self._newest.append(row)
        while self._directory is not None and len(self._newest) > ROWS_PER_FILE:  # the last stays in memory
            rows, self._newest = self._newest[:ROWS_PER_FILE], self._newest[ROWS_PER_FILE:]
            self._add_file(rows)

    def _add_file(self, rows: Sequence[Row]) -> None:
        assert self._directory is not None
        first, self._num_earlier = self._num_earlier + 1, self._num_earlier + len(rows)
        content = gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode(), compresslevel=1, mtime=0)
        digest = hashlib.sha256(content).hexdigest()[:16]
        path = self._directory / f"rows-{first:07d}-{self._num_earlier:07d}-{digest}.jsonl.gz"
        if self._writes and not _is_sound(path, digest):
            write_atomically(path, content)
        self._files.append(path)

    def replace_last(self, row: Row) -> None:
        self._newest[-1] = row

    # --- checkpoints ---

    def state(self) -> dict[str, str]:
        """What a checkpoint holds of the rows."""
        return {"history": json.dumps(self._newest), "history_files": json.dumps([path.name for path in self._files])}

    def load(self, saved: dict[str, str], beside: Path) -> None:
        """Take over the rows of a checkpoint, whose files lie in the directory ``beside``.

        A file that is missing or damaged is replaced by what the attempt's `rounds.jsonl` says. Raises UserError where
        that lacks a row, too.
        """
        names = json.loads(saved.get("history_files", "[]"))  # checkpoints of format 1 hold all rows themselves
        rows: list[Row] = []
        self._files, self._newest, self._num_earlier = [], [], 0
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None:
                raise TypeError(f"history_files names {name!r}")
            path = beside / name
            found = _sound_rows(path, match[3]) or _rows_of_attempt(path, int(match[1]), int(match[2]))
            if self._directory is None:
                rows += found
            else:
                self._add_file(found)
        self._newest = rows + json.loads(saved["history"])


def _lines(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines()


def _is_sound(path: Path, digest: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest()[:16] == digest


def _sound_rows(path: Path, digest: str) -> list[Row]:
    """The rows of a file; none where it is missing or its content does not match its name."""
    try:
        return [json.loads(line) for line in _lines(path)] if _is_sound(path, digest) else []
    except (OSError, EOFError, ValueError, zlib.error):
        return []


def _rows_of_attempt(path: Path, first: int, last: int) -> list[Row]:
    """Rows first to last of the `rounds.jsonl` beside a checkpoint's directory, in place of a damaged file."""
    source = rounds_file(path.parent.parent)
    rows: dict[int, Row] = {}
    try:
        with open(source, "rb") as file:
            for line in itertools.islice(file, first - 1, last):
                row = json.loads(line)
                rows[row[metrics.ROUND]] = row
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        pass
    if list(rows) != list(range(first, last + 1)):
        raise UserError(
            f"{path} is missing or damaged, and {source} does not have rounds {first} to {last}; "
            "leave out --continue or --resume to start again"
        )
    print(f"{path} is missing or damaged; its rows are taken from {source}", file=sys.stderr)
    return list(rows.values())
