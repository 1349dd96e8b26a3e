"""Clocks that jump or stand still: the same figures, the same order, and no negative time."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fl_platform.dashboard.store import Store
from fl_platform.runs.frames import load
from fl_platform.runs.sources import discover
from tests.sweeps.small_sweeps import entries_of, quick_sweep
from tests.torture import forked
from tests.torture.small_run import RUN, fingerprint

Scale = Callable[[int, int], int]

BACKWARDS = """
import time
real, calls = time.time, 0

def jumping():
    '''An hour back at every tenth look.'''
    global calls
    calls += 1
    return real() - 3600 * (calls // 10)

time.time = jumping
"""
AN_HOUR_AGO = "import time; real = time.time; time.time = lambda: real() - 3600\n"


def test_a_run_continued_an_hour_before_it_began(tmp_path: Path, scale: Scale) -> None:
    if scale(0, 1) == 0:
        pytest.skip("three runs: only with --torture")
    args = [*RUN, f"output.dir={tmp_path / 'runs'}"]
    armed = "from tests.torture.kill_points import arm; arm('server step', 3, 1)"
    assert forked.run(args, tmp_path, armed).was_killed
    assert forked.run(args, tmp_path, AN_HOUR_AGO).code == 0
    assert forked.run([*RUN, f"output.dir={tmp_path / 'whole'}"], tmp_path).code == 0
    assert fingerprint(tmp_path / "runs") == fingerprint(tmp_path / "whole")
    runs = load([tmp_path / "runs"])
    assert list(runs.runs["status"]) == ["finished"]
    assert list(runs.rounds["round"]) == [1, 2, 3, 4, 5]
    assert len(discover(tmp_path / "runs").logs) == 2
    for key in ("time/round_seconds", "time/total_seconds"):
        assert (runs.rounds[key] >= 0).all()
    assert runs.rounds["time/total_seconds"].is_monotonic_increasing
    (shown,) = Store(tmp_path / "runs").look().runs.values()
    assert shown.log.status == "finished"


def test_a_sweep_whose_clock_falls_back_all_the_time(tmp_path: Path, scale: Scale) -> None:
    if scale(0, 1) == 0:
        pytest.skip("a sweep: only with --torture")
    sweep = quick_sweep(tmp_path, {"seed": {"values": [0, 1]}})
    launched = ["sweep", "run", str(sweep.source), *sweep.overrides, "--in-process"]
    assert forked.run(launched, tmp_path, BACKWARDS).code == 0
    entries = entries_of(sweep)
    assert [entry.state for entry in entries] == ["finished"] * 2
    assert all((entry.seconds or 0.0) >= 0 for entry in entries)
    told = forked.run(["sweep", "status", str(sweep.directory)], tmp_path, AN_HOUR_AGO)
    assert "2/2 done (2 finished), 0 running, 0 left" in told.out


def test_two_attempts_in_one_second_keep_their_rounds(tmp_path: Path, scale: Scale) -> None:
    """W&B names directories by the second: with a clock that stands still a resume gets the killed one's name."""
    if scale(0, 1) == 0:
        pytest.skip("two runs: only with --torture")
    still = f"import time; time.time = lambda: {time.time()!r}\n"
    args = [*RUN, f"output.dir={tmp_path / 'runs'}"]
    armed = "from tests.torture.kill_points import arm; arm('server step', 4, 1)"
    assert forked.run(args, tmp_path, still + armed).was_killed
    assert forked.run(args, tmp_path, still).code == 0
    runs = load([tmp_path / "runs"])
    assert list(runs.runs["status"]) == ["finished"]
    assert list(runs.rounds["round"]) == [1, 2, 3, 4, 5]
