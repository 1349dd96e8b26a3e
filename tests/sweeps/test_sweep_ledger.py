"""The ledger under rivals and crashes: every trial is somebody's exactly once, and nothing put down is lost."""

import errno
import fcntl
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fl_platform.errors import UserError
from fl_platform.sweeps.events import LedgerError
from fl_platform.sweeps.ledger import Entry, Ledger
from fl_platform.sweeps.states import TrialState

CLAIMER = """
import sys, pathlib
from fl_platform.sweeps.ledger import Ledger
ledger = Ledger(pathlib.Path(sys.argv[1]))
ledger.launch([])
while (entry := ledger.claim(1, 1000, lambda entry: f"run{entry.number}")) is not None:
    print(entry.number, flush=True)
    if sys.argv[2:] == ["hold"]:
        input()
    ledger.record(entry.number, "finished", run_id=entry.run_id, attempt=entry.attempt)
"""


def ledger_with(directory: Path, trials: int) -> Ledger:
    ledger = Ledger(directory)
    ledger.propose([{"seed": number} for number in range(trials)])
    ledger.launch([])
    return ledger


def by_number(entry: Entry) -> str:
    return f"run{entry.number}"


def states(ledger: Ledger) -> list[str]:
    return [entry.state for entry in ledger.entries()]


def claimer(directory: Path, *args: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", CLAIMER, str(directory), *args]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_rivals_share_the_trials_without_doing_one_twice(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, 60)
    claimed = [
        int(number) for rival in [claimer(tmp_path) for _ in range(3)] for number in rival.communicate()[0].split()
    ]
    assert sorted(claimed) == list(range(60))
    assert states(ledger) == ["finished"] * 60


def test_a_claim_lives_with_its_launcher_and_is_taken_over_after_a_kill(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, 1)
    rival = claimer(tmp_path, "hold")
    assert rival.stdout is not None
    assert rival.stdout.readline() == "0\n"
    assert ledger.claim(1, 9, by_number) is None
    rival.send_signal(signal.SIGKILL)
    rival.communicate()
    entry = ledger.claim(1, 9, by_number)
    assert entry is not None
    assert (entry.number, entry.attempt, entry.failures) == (0, 2, 0)


def test_a_claim_outlives_its_launcher_while_a_trial_holds_the_lock(tmp_path: Path) -> None:
    rival = ledger_with(tmp_path, 1)
    assert rival.claim(1, 9, by_number) is not None
    assert rival._lock is not None
    orphan = subprocess.Popen(["sleep", "60"], pass_fds=[rival._lock])
    os.close(rival._lock)  # as when the launcher dies
    ledger = Ledger(tmp_path)
    assert ledger.claim(1, 9, by_number) is None
    orphan.kill()
    orphan.wait()
    assert ledger.claim(1, 9, by_number) is not None


def test_failures_are_retried_and_then_reported(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, 1)
    for attempt in (1, 2, 3):
        entry = ledger.claim(2, 9, by_number)
        assert entry is not None
        assert entry.attempt == attempt
        ledger.record(0, "failed", run_id="run0", attempt=attempt, data={"message": "broke"})
    assert ledger.claim(2, 9, by_number) is None
    assert ledger.claim(3, 9, by_number) is not None


def test_an_interruption_is_not_a_failure(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, 1)
    for _ in range(5):
        entry = ledger.claim(0, 9, by_number)
        assert entry is not None
        ledger.record(0, "interrupted", run_id="run0", attempt=entry.attempt)


def test_equal_configurations_are_run_once(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, 4)
    claimed = [ledger.claim(1, 9, lambda entry: f"run{entry.number % 2}") for _ in range(3)]
    assert [entry and entry.number for entry in claimed] == [0, 1, None]
    assert states(ledger) == ["started", "started", "shared", "shared"]
    assert [entry.data for entry in ledger.entries()][2:] == [{"with": 0}, {"with": 1}]


def test_a_point_that_is_no_configuration_fails_once_with_its_reason(tmp_path: Path) -> None:
    def refuse(entry: Entry) -> str:
        raise UserError("seed=-1 is not allowed; it must be >= 0")

    ledger = ledger_with(tmp_path, 1)
    assert ledger.claim(5, 9, refuse) is None
    (entry,) = ledger.entries()
    assert entry.state == "failed"
    assert entry.data["message"] == "seed=-1 is not allowed; it must be >= 0"


def test_stop_reaches_the_launchers_of_before_and_not_the_next(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, 1)
    assert not ledger.stop_requested()
    Ledger(tmp_path).request_stop()
    assert ledger.stop_requested()
    later = Ledger(tmp_path)
    later.launch([])
    assert not later.stop_requested()


def test_events_are_only_added_and_survive_a_kill(tmp_path: Path) -> None:
    ledger_with(tmp_path, 50).close()
    rival = claimer(tmp_path)
    assert rival.stdout is not None
    reported = [int(rival.stdout.readline()) for _ in range(10)]
    rival.send_signal(signal.SIGKILL)
    reported += [int(word) for word in rival.communicate()[0].split()]
    events = (
        sqlite3.connect(tmp_path / "ledger.sqlite")
        .execute("SELECT trial, kind, data FROM events ORDER BY seq")
        .fetchall()
    )
    assert [json.loads(data)["params"] for _, kind, data in events if kind == "proposed"] == [
        {"seed": n} for n in range(50)
    ]
    started = [trial for trial, kind, _ in events if kind == "started"]
    assert started[: len(reported)] == reported  # what was said to be claimed is on disk
    assert [trial for trial, kind, _ in events if kind == "finished"][:9] == reported[:9]


def test_every_look_at_the_file_searches_an_index(tmp_path: Path) -> None:
    with ledger_with(tmp_path, 3) as ledger:
        (plan,) = ledger._db.execute(f"EXPLAIN QUERY PLAN {ledger._query}", (1,)).fetchall()
    assert plan["detail"] == "SEARCH events USING INTEGER PRIMARY KEY (rowid>?)"


def test_a_claim_looks_at_no_trial_that_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    plain = Ledger.is_open
    monkeypatch.setattr(
        Ledger, "is_open", lambda self, entry, retries: looked.append(entry.number) or plain(self, entry, retries)
    )
    with ledger_with(tmp_path, 100) as ledger:
        for state in [*("finished", "diverged", "stopped") * 20, "failed", "interrupted"]:
            entry = ledger.claim(0, 100, by_number)
            ledger.record(entry.number, state, run_id=entry.run_id, attempt=entry.attempt)
        looked.clear()
        assert ledger.claim(0, 100, by_number).number == 61  # the failed one may not be tried again
        assert looked == [60, 61]
        assert ledger.claim(0, 61, by_number) is None


def test_proposing_again_adds_nothing(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, 3)
    ledger.propose([{"seed": number} for number in range(3)])
    assert ledger.count() == 3
    assert ledger.propose_next(4, lambda number, entries: {"n": number, "known": len(entries)})
    assert not ledger.propose_next(4, lambda number, entries: {})
    assert ledger.entries()[3].params == {"n": 3, "known": 3}


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"not a database, and long enough to be looked at" * 50)
    with pytest.raises(UserError, match=r"ledger\.sqlite cannot be used as a ledger"):
        Ledger(tmp_path)


# --- damage ---


def worked(directory: Path) -> Path:
    """The file of a ledger with trials in several states."""
    with ledger_with(directory, 6) as ledger:
        ledger.keep_retries(1)
        for state in ("finished", "diverged", "failed", "interrupted"):
            entry = ledger.claim(1, 9, by_number)
            assert entry is not None
            summary = {"summary": {"test/accuracy": 0.5}, "message": ""}
            ledger.record(entry.number, state, run_id=entry.run_id, attempt=entry.attempt, data=summary)
        return ledger.file


def facts(directory: Path, *, read_only: bool) -> object:
    with Ledger(directory, read_only=read_only) as ledger:
        return ledger.retries(), [(entry.number, entry.state, entry.params, entry.data) for entry in ledger.entries()]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_damaged_ledger_is_one_sentence_or_reads_as_it_was(read_only: bool, tmp_path: Path) -> None:
    content = worked(tmp_path / "whole").read_bytes()
    whole = facts(tmp_path / "whole", read_only=read_only)
    place = tmp_path / "damaged"
    place.mkdir()
    refused = 0
    step = max(1, len(content) * 8 // 600)
    for bit in range(7, len(content) * 8, step):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        refused += reads_or_refuses(place, bytes(damaged), whole, read_only)
    for size in range(0, len(content), len(content) // 26):
        if size:  # an empty file is a ledger without trials
            refused += reads_or_refuses(place, content[:size], whole, read_only)
    assert refused > 20


def reads_or_refuses(place: Path, content: bytes, whole: object, read_only: bool) -> bool:
    for path in place.glob("ledger*"):
        path.unlink()
    (place / "ledger.sqlite").write_bytes(content)
    try:
        assert facts(place, read_only=read_only) == whole
    except UserError:
        return True
    return False


def test_an_unknown_state_is_refused(tmp_path: Path) -> None:
    file = worked(tmp_path)
    with sqlite3.connect(file) as database:
        database.execute("UPDATE events SET kind = 'finishee', crc = NULL WHERE kind = 'finished'")
        database.execute("UPDATE events SET crc = NULL")  # as in a ledger of format 1
    database.close()
    with Ledger(tmp_path) as ledger, pytest.raises(LedgerError, match="has the state 'finishee'; known: proposed,"):
        ledger.entries()


def test_a_changed_value_fails_its_checksum(tmp_path: Path) -> None:
    file = worked(tmp_path)
    with sqlite3.connect(file) as database:
        database.execute("UPDATE events SET kind = 'finished' WHERE kind = 'failed'")
    database.close()
    with pytest.raises(LedgerError, match="the checksum of row 14 is wrong; move it away and launch again"):
        facts(tmp_path, read_only=True)


def test_a_ledger_without_checksums_is_read_and_goes_on(tmp_path: Path) -> None:
    file = worked(tmp_path)
    with sqlite3.connect(file) as database:
        database.execute("ALTER TABLE events DROP COLUMN crc")
        database.execute("PRAGMA user_version=0")
    database.close()
    before = facts(tmp_path, read_only=True)
    with Ledger(tmp_path) as ledger:
        ledger.launch([])
        entry = ledger.claim(1, 9, by_number)
        assert entry is not None
        assert entry.state is TrialState.STARTED
    assert facts(tmp_path, read_only=True) != before


def test_a_ledger_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    file = worked(tmp_path)
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version=99")
    database.close()
    for read_only in (True, False):
        with pytest.raises(LedgerError, match="has format 99, of a newer version"):
            Ledger(tmp_path, read_only=read_only)


# --- reading only ---


def listing(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir() if path.is_file()}


def test_reading_changes_no_file_whether_the_ledger_was_closed_or_not(tmp_path: Path) -> None:
    file = worked(tmp_path / "closed")
    open_ledger = ledger_with(tmp_path / "open", 2)
    open_ledger.claim(1, 9, by_number)
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name in (file.name, f"{file.name}-wal"):
        (crashed / name).write_bytes((tmp_path / "open" / name).read_bytes())
    for name, expected in (("closed", 6), ("crashed", 2)):
        before = listing(tmp_path / name)
        with Ledger(tmp_path / name, read_only=True) as ledger:
            assert len(ledger.entries()) == expected
            with pytest.raises(UserError, match="is open for reading only"):
                ledger.request_stop()
        assert listing(tmp_path / name) == before
    with Ledger(tmp_path / "open", read_only=True) as ledger:
        assert [entry.state for entry in ledger.entries()] == ["started", "proposed"]
        open_ledger.record(0, "finished", run_id="run0")
        assert [entry.state for entry in ledger.entries()] == ["finished", "proposed"]


def test_reading_where_there_is_no_ledger_makes_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no ledger"):
        Ledger(tmp_path / "nowhere", read_only=True)
    assert not (tmp_path / "nowhere").exists()


def test_a_launcher_of_another_host_whose_lock_is_not_seen_is_not_joined(tmp_path: Path) -> None:
    """What a file system that keeps locks on each host shows: the other's file is fresh, and its lock can be taken."""
    other = tmp_path / "launchers" / "elsewhere-7-0123abcd.lock"
    other.parent.mkdir(parents=True)
    other.touch()
    with Ledger(tmp_path) as ledger, pytest.raises(UserError, match="a launcher on elsewhere works on this sweep"):
        ledger.launch([])
    with open(other, "r+") as held, Ledger(tmp_path) as ledger:
        fcntl.flock(held, fcntl.LOCK_EX)
        ledger.launch([])  # its lock is seen
    os.utime(other, (time.time() - 60, time.time() - 60))
    with Ledger(tmp_path) as ledger:
        ledger.launch([])  # it is dead
        os.utime(ledger._lock_file(ledger.launcher), (0, 0))
        ledger.beat()
        assert time.time() - ledger._lock_file(ledger.launcher).stat().st_mtime < 30


@pytest.mark.parametrize(("result", "why"), [(None, "locks:"), (OSError(errno.ENOLCK, "no locks"), r"\(no locks\)")])
def test_a_file_system_without_working_locks_is_refused(
    result: OSError | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(handle: int, operation: int) -> None:
        if result is not None:
            raise result

    monkeypatch.setattr(fcntl, "flock", flock)  # no file system at hand here lacks them
    with (
        Ledger(tmp_path) as ledger,
        pytest.raises(UserError, match=f"without working locks *{why}|without working {why}"),
    ):
        ledger.launch([])
    assert not list((tmp_path / "launchers").iterdir())
