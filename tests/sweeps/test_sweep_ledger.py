"""The ledger under rivals and crashes: every trial is somebody's exactly once, and nothing put down is lost."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from fl_platform.errors import UserError
from fl_platform.sweeps.ledger import Entry, Ledger

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


def claimer(directory: Path, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", CLAIMER, str(directory), *words]
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
