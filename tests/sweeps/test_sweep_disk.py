"""What a sweep takes on the disk: the warning before it is full, and ``sweep prune``."""

import shutil
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.federation.trained import load_model
from fl_platform.runs.directory import RunDirectory
from tests.sweeps.small_sweeps import entries_of, launch_here, quick_sweep

WARNING = "runs are left, which would take"


def checkpoints(runs: Path) -> list[str]:
    return sorted(path.name for path in runs.glob("*/attempts/*/checkpoints/*.ckpt"))


def test_a_sweep_that_will_not_fit_says_so_once_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = quick_sweep(tmp_path, {"seed": {"values": [0, 1, 2, 3]}})
    free = shutil.disk_usage(tmp_path)._replace(free=10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    status = launch_here(sweep)
    said = capsys.readouterr().err
    assert status.counts["finished"] == 4
    assert said.count(WARNING) == 1
    assert "warning: 3 runs are left" in said
    assert "has 10.00 kB; checkpoint.keep_finished=false drops" in said


def test_a_sweep_that_fits_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch_here(quick_sweep(tmp_path, {"seed": {"values": [0, 1]}}))
    assert WARNING not in capsys.readouterr().err


def test_prune_drops_what_ended_runs_go_on_from_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    sweep = quick_sweep(tmp_path, {"seed": {"values": [0, 1]}}, "checkpoint.keep_best=true", "checkpoint.every=1")
    launch_here(sweep)
    first, second = (RunDirectory(runs, str(entry.run_id)) for entry in entries_of(sweep))
    second.result_file.unlink()  # as if it had been killed before
    before = checkpoints(runs)
    others = {path: path.read_bytes() for path in first.path.rglob("*") if path.is_file() and path.suffix != ".ckpt"}
    capsys.readouterr()

    assert main(["sweep", "prune", str(runs), "--dry-run"]) == 0
    assert "of checkpoints of 1 runs that have their result would be dropped" in capsys.readouterr().out
    assert checkpoints(runs) == before

    assert main(["sweep", "prune", str(sweep.directory)]) == 0
    assert capsys.readouterr().out.endswith("dropped\n1 runs that have not ended keep theirs\n")
    assert [path.name.split("-")[0] for path in first.path.rglob("*.ckpt")] == ["best"]
    assert {path: path.read_bytes() for path in others} == others
    assert second.newest_checkpoint() is not None
    load_model(first.path, "best")

    assert main(["sweep", "prune", str(runs)]) == 0
    assert "0 B of checkpoints of 0 runs" in capsys.readouterr().out


def test_prune_leaves_a_newer_attempt_alone(tmp_path: Path) -> None:
    """Another host may be at work on it."""
    sweep = quick_sweep(tmp_path, {"seed": {"value": 0}})
    launch_here(sweep)
    run = RunDirectory(tmp_path / "runs", str(entries_of(sweep)[0].run_id))
    older = run.all_attempts()[0]
    shutil.copytree(older, older.with_name("0002"))
    assert main(["sweep", "prune", str(tmp_path / "runs")]) == 0
    assert checkpoints(tmp_path / "runs") == [path.name for path in (older.with_name("0002") / "checkpoints").iterdir()]


def test_prune_of_a_directory_without_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "prune", str(tmp_path)]) == 2
    assert f"{tmp_path} holds no runs" in capsys.readouterr().err
