"""``why``: each way a run can stand, in one line."""

import json
import os
import socket
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.dashboard.store import Store
from fl_platform.dashboard.views import Views
from fl_platform.errors import NO_SPACE_LEFT, DiskFull, OutOfMemory, UserCodeError, UserError
from fl_platform.reporting.tables import run_notes
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.frames import load as load_runs
from fl_platform.runs.liveness import at_work, crash_ending, ending_of, error_file, recorded_end
from fl_platform.runs.status import Ending, RunStatus
from tests.dashboard.made_runs import make_old, write_run


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending.status is RunStatus.CRASHED])
def test_every_crash_has_its_own_words(ending: Ending, tmp_path: Path, capsys) -> None:
    """The same in `why`, in a report's notes and in the dashboard's rows."""
    rounds = write_run(tmp_path, "abc", status=None)
    host = "elsewhere" if ending is Ending.LOST else socket.gethostname()
    noted = {} if ending in (Ending.LOST, Ending.KILLED) else {"status": "crashed", "ending": ending.value}
    (rounds.parent / "process.json").write_text(json.dumps({"host": host, "pid": 1, **noted}))
    make_old(tmp_path)
    assert main(["why", "abc", "--dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert f"run abc {ending}; " in printed
    assert f"{ending}: {ending.explanation}" in printed
    store = Store(tmp_path)
    row = Views(store).run({"id": "abc"}) if store.look() else {}
    assert (row["status"], row["ending"]) == ("crashed", ending.value)
    assert f"Not averaged: 1 {ending} (abc)." in map(str, run_notes(load_runs(tmp_path), []))


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (DiskFull("full"), Ending.DISK_FULL),
        (OSError(NO_SPACE_LEFT[0], "full"), Ending.DISK_FULL),
        (MemoryError(), Ending.OUT_OF_MEMORY),
        (OutOfMemory("round 1"), Ending.OUT_OF_MEMORY),
        (UserCodeError("hook", "line 1"), Ending.USER_CODE),
        (RuntimeError("?"), Ending.CRASHED),
        (KeyboardInterrupt(), Ending.INTERRUPTED),
    ],
)
def test_an_attempt_records_how_it_ended(error: BaseException, ending: Ending, tmp_path: Path) -> None:
    attempt = RunDirectory(tmp_path, "abc").start_attempt()
    with pytest.raises(type(error)), at_work(attempt):
        raise error
    assert ending_of(error) is ending
    assert recorded_end(attempt) is ending.status
    assert crash_ending(attempt) is (ending if ending.status is RunStatus.CRASHED else Ending.CRASHED)
    kept = error_file(attempt)
    assert (kept is not None) is (ending.status is RunStatus.CRASHED)
    assert kept is None or str(error) in kept.read_text()
    with pytest.raises(UserError), at_work(attempt):
        raise UserError("refused before it began")
    assert recorded_end(attempt) is ending.status
    assert error_file(attempt) == kept
    with at_work(attempt):
        pass
    assert error_file(attempt) is None


@pytest.mark.parametrize("status", [RunStatus.FINISHED, RunStatus.DIVERGED])
def test_a_run_that_ended_says_so(status: RunStatus, tmp_path: Path, capsys) -> None:
    write_run(tmp_path, "abc", status=status.value)
    assert main(["why", str(tmp_path / "abc")]) == 0
    assert f"run abc {status}" in capsys.readouterr().out


def test_no_such_run_is_one_sentence(tmp_path: Path, capsys) -> None:
    assert main(["why", "nothing", "--dir", os.fspath(tmp_path)]) == 2
    assert "nothing is neither a run below" in capsys.readouterr().err
