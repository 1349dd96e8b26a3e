"""``why``: each way a run can stand, in one line."""

import json
import os
import socket
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.cli.why import REASONS
from fl_platform.errors import NO_SPACE_LEFT, DiskFull, OutOfMemory, UserCodeError
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.liveness import at_work, cause_of, crash_cause
from fl_platform.runs.status import CrashCause, RunStatus
from tests.dashboard.made_runs import make_old, write_run


@pytest.mark.parametrize("cause", CrashCause)
def test_every_cause_has_its_own_sentence(cause: CrashCause, tmp_path: Path, capsys) -> None:
    rounds = write_run(tmp_path, "abc", status=None)
    host = "elsewhere" if cause is CrashCause.LOST else socket.gethostname()
    noted = {} if cause in (CrashCause.LOST, CrashCause.KILLED) else {"status": "crashed", "cause": cause.value}
    (rounds.parent / "process.json").write_text(json.dumps({"host": host, "pid": 1, **noted}))
    make_old(tmp_path)
    assert main(["why", "abc", "--dir", str(tmp_path)]) == 0
    assert f"run abc crashed: {REASONS[cause]}; " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (DiskFull("full"), CrashCause.DISK_FULL),
        (OSError(NO_SPACE_LEFT[0], "full"), CrashCause.DISK_FULL),
        (MemoryError(), CrashCause.OUT_OF_MEMORY),
        (OutOfMemory("round 1"), CrashCause.OUT_OF_MEMORY),
        (UserCodeError("hook", ""), CrashCause.USER_CODE),
        (RuntimeError("?"), CrashCause.ERROR),
    ],
)
def test_an_attempt_records_why_it_ended(error: Exception, cause: CrashCause, tmp_path: Path) -> None:
    attempt = RunDirectory(tmp_path, "abc").start_attempt()
    with pytest.raises(type(error)), at_work(attempt):
        raise error
    assert cause_of(error) is crash_cause(attempt) is cause


@pytest.mark.parametrize("status", [RunStatus.FINISHED, RunStatus.DIVERGED])
def test_a_run_that_ended_says_so(status: RunStatus, tmp_path: Path, capsys) -> None:
    write_run(tmp_path, "abc", status=status.value)
    assert main(["why", str(tmp_path / "abc")]) == 0
    assert f"run abc {status}" in capsys.readouterr().out


def test_no_such_run_is_one_sentence(tmp_path: Path, capsys) -> None:
    assert main(["why", "nothing", "--dir", os.fspath(tmp_path)]) == 2
    assert "nothing is neither a run below" in capsys.readouterr().err
