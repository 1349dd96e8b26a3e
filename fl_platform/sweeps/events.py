"""The file of a ledger: its format, its rows with their checksums, and how it is opened."""

import json
import shutil
import sqlite3
import tempfile
import urllib.parse
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fl_platform.errors import UserError
from fl_platform.runs import formats
from fl_platform.sweeps.states import TrialState

LAUNCH, RETRIES, STOP = "launch", "retries", "stop"
_LAUNCHER_KINDS = (LAUNCH, RETRIES, STOP)
_TRIAL_KINDS = tuple(TrialState)
_TYPES: dict[str, Any] = {
    "time": float,
    "trial": int | None,
    "kind": str,
    "run_id": str | None,
    "attempt": int | None,
    "launcher": str | None,
    "host": str,
    "pid": int,
    "data": str,
}
"""The columns of a row, in their order, and the types that their values may have."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY, time REAL NOT NULL, trial INTEGER, kind TEXT NOT NULL, run_id TEXT, attempt INTEGER,
    launcher TEXT, host TEXT NOT NULL, pid INTEGER NOT NULL, data TEXT NOT NULL, crc INTEGER
);
CREATE INDEX IF NOT EXISTS by_trial ON events (trial, seq);
"""


class LedgerError(UserError):
    """A ledger that is damaged or was written by a newer version."""


class Event(NamedTuple):
    """One row: what happened to a trial, or without a trial what a launcher did."""

    seq: int
    time: float
    trial: int | None
    kind: str
    run_id: str | None
    attempt: int | None
    launcher: str | None
    host: str
    pid: int
    data: dict[str, Any]


def checksum(values: Sequence[Any]) -> int:
    """The checksum of a row's values, in the order of its columns and as JSON text."""
    return zlib.crc32(json.dumps(values).encode())


def insert(values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The statement that appends a row of these values, in the order of the columns, and what it is given."""
    names = ", ".join((*_TYPES, "crc"))
    marks = ", ".join("?" * (len(_TYPES) + 1))
    return f"INSERT INTO events ({names}) VALUES ({marks})", (*values, checksum(values))


def open_for_writing(file: Path) -> sqlite3.Connection:
    """Open a ledger, made or brought to the current format; LedgerError for one of a newer version."""
    database = _connect(f"{file.absolute().as_uri()}?mode=rwc", timeout=60)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    if _check_format(database, file) < formats.LEDGER:
        database.execute("BEGIN IMMEDIATE")
        if _check_format(database, file) < formats.LEDGER:  # not brought there by another launcher meanwhile
            if _has_table(database) and not _has_checksums(database):
                database.execute("ALTER TABLE events ADD COLUMN crc INTEGER")
            for statement in filter(str.strip, _SCHEMA.split(";")):
                database.execute(statement)
            database.execute(f"PRAGMA user_version={formats.LEDGER}")
        database.execute("COMMIT")
    return database


def open_for_reading(file: Path) -> sqlite3.Connection:
    """Open a ledger without changing any file beside it; a launcher may be writing to it.

    Raises UserError where there is no ledger, LedgerError for one of a newer version.
    """
    if not file.is_file():
        raise UserError(f"{file}: there is no ledger; `sweep run` makes one")
    address = file.absolute().as_uri()
    log = file.with_name(f"{file.name}-wal")
    try:
        is_written = log.stat().st_size > 0
    except FileNotFoundError:
        is_written = False
    if not is_written:  # everything is in the main file
        database = _connect(f"{address}?immutable=1", timeout=60)
    elif file.with_name(f"{file.name}-shm").exists():
        database = _connect(f"{address}?mode=ro", timeout=60)
    else:  # SQLite would make its shared-memory file
        database = _copy(file, log)
    try:
        _check_format(database, file)
    except sqlite3.OperationalError:
        if not is_written:
            raise
        database.close()
        database = _copy(file, log)  # a read-only file system, where SQLite cannot share a write-ahead log
        _check_format(database, file)
    return database


def _copy(file: Path, log: Path) -> sqlite3.Connection:
    """The content of a ledger and its write-ahead log, in memory."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(file, Path(folder, file.name))
        shutil.copyfile(log, Path(folder, log.name))
        place = urllib.parse.quote(str(Path(folder, file.name)))
        copied = _connect(f"file:{place}", timeout=60)
        copied.backup(database)
        copied.close()
    return _prepare(database)


def _connect(address: str, timeout: float) -> sqlite3.Connection:
    return _prepare(sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None))


def _prepare(database: sqlite3.Connection) -> sqlite3.Connection:
    database.row_factory = sqlite3.Row
    database.text_factory = lambda content: content.decode(errors="surrogateescape")  # damage fails its checksum
    return database


def _check_format(database: sqlite3.Connection, file: Path) -> int:
    """The format of a ledger, kept as SQLite's ``user_version``: 0 is that of release 0.1.0."""
    found = int(database.execute("PRAGMA user_version").fetchone()[0])
    try:
        return formats.check_format(f"the ledger {file}", found or 1, formats.LEDGER)
    except formats.FormatError as error:
        raise LedgerError(str(error)) from None


def _has_table(database: sqlite3.Connection) -> bool:
    return bool(database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'events'").fetchall())


def _has_checksums(database: sqlite3.Connection) -> bool:
    return any(column["name"] == "crc" for column in database.execute("PRAGMA table_info(events)"))


def select(database: sqlite3.Connection) -> str:
    """The query for the rows after a given one, in order."""
    crc = "crc" if _has_checksums(database) else "NULL AS crc"
    return f"SELECT seq, {', '.join(_TYPES)}, {crc} FROM events WHERE seq > ? ORDER BY seq"


def parse(row: sqlite3.Row, expected: int, *, needs_checksum: bool) -> Event:
    """The event of a row, whose number must be ``expected``; ValueError for a damaged one.

    Rows of format 1 have no checksum; after the first that has one, every row needs one.
    """
    seq, *values, crc = row
    if seq != expected:
        raise ValueError(f"row {expected} is missing")
    if not all(map(isinstance, values, _TYPES.values())):
        raise ValueError(f"row {expected} has a value of the wrong type")
    time, trial, kind, run_id, attempt, launcher, host, pid, text = values
    if crc is None and needs_checksum:
        raise ValueError(f"row {expected} has no checksum")
    if crc is not None and crc != checksum(values):
        raise ValueError(f"the checksum of row {expected} is wrong")
    known = _LAUNCHER_KINDS if trial is None else _TRIAL_KINDS
    if kind not in known:
        raise ValueError(f"row {expected} has the state {kind!r}; known: {', '.join(known)}")
    data = json.loads(text)
    if not isinstance(data, dict) or not isinstance(data.get("summary", {}), dict):
        raise ValueError(f"row {expected} has no data")
    if kind == TrialState.PROPOSED and not isinstance(data.get("params"), dict):
        raise ValueError(f"row {expected} proposes no point")
    return Event(seq, time, trial, kind, run_id, attempt, launcher, host, pid, data)
