"""The ledger of a sweep: an append-only table of what happened to each trial, safe against crashes and other launchers.

A trial's state is its newest event: proposed, started, finished, diverged, stopped (early termination), failed,
interrupted, or shared (its configuration equals that of another trial). Rows are only ever added, and each has a
checksum: a damaged row, an unknown state or a gap is refused.
"""

import contextlib
import fcntl
import json
import os
import socket
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fl_platform.errors import DiskFull, UserError
from fl_platform.runs.formats import LEDGER_FILE
from fl_platform.runs.liveness import check_locks, is_held
from fl_platform.runs.writing import writing
from fl_platform.sweeps import events
from fl_platform.sweeps.events import Event, LedgerError
from fl_platform.sweeps.states import TrialState

BEAT_SECONDS = 30.0
"""A launcher that noted within this time that it is at work is alive, whatever its lock says."""
NEW_LEDGER_HINT = "; move it away and launch again, which takes over the runs that are finished"


class Entry(NamedTuple):
    """A trial as the ledger has it."""

    number: int
    state: TrialState
    params: dict[str, Any]
    run_id: str | None
    attempt: int
    launcher: str | None
    host: str
    pid: int
    time: float  # of the newest event
    began: float | None  # of the newest start
    failures: int
    data: dict[str, Any]

    @property
    def summary(self) -> dict[str, Any]:
        """The run's summary as far as the trial left one."""
        found: dict[str, Any] = self.data.get("summary", {})
        return found

    @property
    def seconds(self) -> float | None:
        """Between the newest start and the newest event; 0 where the clock was set back in between."""
        return max(0.0, self.time - self.began) if self.began is not None else None


_FINAL = (TrialState.FINISHED, TrialState.DIVERGED, TrialState.STOPPED, TrialState.SHARED)
"""States that no claim looks at; of those that have failed, some are tried again."""


class Ledger:
    """One process's access to a sweep's events. The identity of a launcher is a lock it and its trials hold.

    With ``read_only`` no file is made or changed, and what would write raises UserError. Every method raises
    LedgerError for a damaged ledger.
    """

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self.directory, self.read_only = directory, read_only
        self.launcher = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._lock: int | None = None
        self.file = directory / LEDGER_FILE
        if not read_only:
            with writing(str(directory)):
                directory.mkdir(parents=True, exist_ok=True)
        try:
            self._db = events.open_for_reading(self.file) if read_only else events.open_for_writing(self.file)
            self._query = events.select(self._db)
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the second where SQLite quotes damaged text
            raise LedgerError(f"{self.file} cannot be used as a ledger: {error}{NEW_LEDGER_HINT}") from None
        self._forget()

    def _forget(self) -> None:
        """Read every row again at the next access."""
        self._last, self._has_checksums = 0, False
        self._entries: dict[int, Entry] = {}
        self._undone: dict[int, None] = {}  # numbers of trials that are not done, in their order
        self._owners: dict[str, int] = {}  # run id -> the first trial that has it
        self._retries, self._stopped_at, self._launched_at = 0, 0, 0

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database and release the launcher's lock."""
        self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock_file(self.launcher).unlink(missing_ok=True)
            self._lock = None

    # --- launchers ---

    def launch(self, arguments: list[str]) -> int:
        """Register this process as a launcher, with the arguments it was given.

        Returns the descriptor of its lock, which trials inherit: a claim holds while the launcher or the trial lives.
        """
        path = self._lock_file(self.launcher)
        with writing(str(path.parent)):
            path.parent.mkdir(exist_ok=True)
            check_locks(path.parent)
            self._lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.beat()
        self._check_other_hosts(path)
        self.record(None, events.LAUNCH, data={"arguments": arguments})
        return self._lock

    def beat(self) -> None:
        """Note on the launcher's lock that it is at work; call it at least every few seconds."""
        if self._lock is not None:
            os.utime(self._lock)

    def _check_other_hosts(self, own: Path) -> None:
        """Raise UserError where a launcher on another host was at work just now, but its lock cannot be seen here."""
        now = own.stat().st_mtime  # of the file system's clock
        for path in own.parent.glob("*.lock"):
            host = path.stem.rsplit("-", 2)[0]
            if host == socket.gethostname() or is_held(path) is not False:
                continue
            with contextlib.suppress(FileNotFoundError):
                if abs(now - path.stat().st_mtime) < BEAT_SECONDS:
                    raise UserError(
                        f"a launcher on {host} works on this sweep, and {own.parent} does not share its lock: trials "
                        f"would run twice; use one host or Ray; if that launcher was killed, wait {BEAT_SECONDS:.0f} s"
                    )

    def keep_retries(self, retries: int) -> None:
        """Record how often this launcher tries failed trials again."""
        self.record(None, events.RETRIES, data={"retries": retries})

    def retries(self) -> int:
        """How often failed trials are tried again, as the newest launcher recorded it; 0 where none did."""
        self._read()
        return self._retries

    def is_alive(self, launcher: str) -> bool:
        """Whether a launcher, or a trial that outlived it, still holds its lock."""
        if launcher == self.launcher:
            return True
        path = self._lock_file(launcher)
        return path.exists() and is_held(path) is not False

    def _lock_file(self, launcher: str) -> Path:
        return self.directory / "launchers" / f"{launcher}.lock"

    def request_stop(self) -> None:
        """Ask the launchers at work to stop."""
        self.record(None, events.STOP)

    def stop_requested(self) -> bool:
        """Whether someone asked the launchers to stop since this one entered."""
        self._read()
        return self._stopped_at > self._launched_at > 0

    # --- events ---

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.OperationalError as error:  # a full disk, a read-only one, another launcher that holds it
            kind = DiskFull if error.sqlite_errorcode == sqlite3.SQLITE_FULL else UserError
            raise kind(
                f"the ledger {self.file} cannot be used: {error}; what it has stays, and the same command goes on"
            ) from None
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise LedgerError(f"the ledger {self.file} is damaged: {error}{NEW_LEDGER_HINT}") from None

    def _read(self) -> None:
        """Read the rows that were added since the last call."""
        try:
            for row in self._rows(self._query, (self._last,)):
                event = events.parse(row, self._last + 1, needs_checksum=self._has_checksums)
                self._has_checksums = row["crc"] is not None
                self._apply(event)
                self._last = event.seq
        except (ValueError, RecursionError) as error:
            if isinstance(error, UserError):
                raise
            raise LedgerError(f"the ledger {self.file} is damaged: {error}{NEW_LEDGER_HINT}") from None

    def _apply(self, event: Event) -> None:
        """Bring what is known of trials and launchers up to date; ValueError for an event that cannot follow."""
        if event.trial is None:
            if event.kind == events.RETRIES:
                self._retries = _whole(event.data.get("retries"))
            elif event.kind == events.STOP:
                self._stopped_at = event.seq
            elif event.launcher == self.launcher:
                self._launched_at = event.seq
            return
        known, state = self._entries.get(event.trial), TrialState(event.kind)
        follows = (state is TrialState.PROPOSED) is (known is None)
        if not follows or (known is None and event.trial != len(self._entries)):
            raise ValueError(f"row {event.seq} is {event.kind} for trial {event.trial}, which cannot follow")
        self._entries[event.trial] = Entry(
            number=event.trial,
            state=state,
            params=event.data["params"] if known is None else known.params,
            run_id=event.run_id,
            attempt=event.attempt or 0,
            launcher=event.launcher,
            host=event.host,
            pid=event.pid,
            time=event.time,
            began=event.time if state is TrialState.STARTED else known.began if known else None,
            failures=(known.failures if known else 0) + (state is TrialState.FAILED),
            data=event.data,
        )
        if state in _FINAL:
            self._undone.pop(event.trial, None)
        else:
            self._undone.setdefault(event.trial)
        if event.run_id:
            self._owners.setdefault(event.run_id, event.trial)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block as one transaction: no other process writes in between."""
        self._rows("BEGIN IMMEDIATE")
        try:
            yield
            self._rows("COMMIT")
        except BaseException:
            self._forget()  # rows of this transaction may have been read
            if self._db.in_transaction:  # a full disk has ended it already
                self._db.execute("ROLLBACK")
            raise

    def record(
        self,
        trial: int | None,
        kind: str,
        *,
        run_id: str | None = None,
        attempt: int = 0,
        pid: int | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Append an event: of a trial, or without one of a launcher."""
        if self.read_only:
            raise UserError(f"the ledger {self.file} is open for reading only")
        values = (
            time.time(),
            trial,
            str(kind),
            run_id,
            attempt,
            self.launcher,
            socket.gethostname(),
            pid or os.getpid(),
            json.dumps(data or {}),
        )
        self._rows(*events.insert(values))

    def entries(self) -> list[Entry]:
        """Every trial with its newest state, in the order of their numbers."""
        self._read()
        return list(self._entries.values())

    def propose(self, wanted: list[dict[str, Any]]) -> None:
        """Record the points of a grid; those already recorded are left alone."""
        with self.transaction():
            for number in range(self.count(), len(wanted)):
                self.record(number, TrialState.PROPOSED, data={"params": wanted[number]})

    def propose_next(self, at_most: int, next_point: Callable[[int, list[Entry]], dict[str, Any]]) -> bool:
        """Record one more point of a search; returns False where it has ``at_most`` already."""
        with self.transaction():
            number = self.count()
            if number >= at_most:
                return False
            self.record(number, TrialState.PROPOSED, data={"params": next_point(number, self.entries())})
            return True

    def count(self) -> int:
        """How many trials were proposed."""
        self._read()
        return len(self._entries)

    def claim(self, retries: int, at_most: int, identify: Callable[[Entry], str]) -> Entry | None:
        """Record the start of the next trial that is open to this launcher and return it; None where none is.

        ``identify`` gives a trial's run id. A trial whose run id another one has is recorded as shared.
        """
        while True:
            with self.transaction():
                self._read()
                entry = self._first_open(retries, at_most)
                if entry is None:
                    return None
                try:
                    run_id = identify(entry)
                except UserError as error:
                    self.record(entry.number, TrialState.FAILED, data={"message": str(error), "final": True})
                    continue
                owner = self._owners.get(run_id, entry.number)
                if owner != entry.number:
                    self.record(entry.number, TrialState.SHARED, data={"with": owner})
                    continue
                self.record(entry.number, TrialState.STARTED, run_id=run_id, attempt=entry.attempt + 1)
                self._read()
                return self._entries[entry.number]

    def _first_open(self, retries: int, at_most: int) -> Entry | None:
        """The first of ``at_most`` trials that may be started; those that are done are not looked at again."""
        undone = (self._entries[number] for number in self._undone if number < at_most)
        return next((entry for entry in undone if self.is_open(entry, retries)), None)

    def is_open(self, entry: Entry, retries: int) -> bool:
        """Whether a trial may be started: never was, was interrupted, may be retried, or its launcher is dead."""
        if entry.state is TrialState.STARTED:
            return not self.is_alive(entry.launcher or "")
        if entry.state is TrialState.FAILED:
            return entry.failures <= retries and not entry.data.get("final")
        return entry.state in (TrialState.PROPOSED, TrialState.INTERRUPTED)


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value
