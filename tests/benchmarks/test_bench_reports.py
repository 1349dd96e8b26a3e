"""The runs and the sweep that reports are measured on are such as the platform itself leaves."""

import contextlib
import io
from pathlib import Path

import pytest

from benchmarks import reports
from fl_platform.cli import main
from fl_platform.runs import metrics
from fl_platform.runs.frames import load
from fl_platform.runs.sources import discover


@pytest.fixture(scope="module")
def real() -> dict[str, tuple[reports.Row, dict[str, object]]]:
    return {"fedavg": reports.real_run("fedavg")}


def test_runs_are_finished_and_sound(real, tmp_path: Path) -> None:
    for args in [args for args in reports.settings(8) if args[1] == "algorithm.name=fedavg"]:
        reports.write_run(tmp_path, 5, real, args)
    found = load(tmp_path)
    assert found.warnings == ()
    assert found.runs["status"].tolist() == ["finished"] * 2
    assert len(found.rounds) == 10
    assert set(found.rounds) == {"run_id", *real["fedavg"][0]}
    top = found.rounds.groupby("run_id")[metrics.TEST_ACCURACY].max()
    assert top.tolist() == found.runs[f"summary.{metrics.TOP_ACCURACY}"].tolist()
    assert len(discover(tmp_path).logs) == 2


def test_settings_differ() -> None:
    assert len(set(map(tuple, reports.settings(1000)))) == 1000
    assert len({args[1] for args in reports.settings(4)}) == 4


def test_the_trials_of_the_sweep_have_finished(tmp_path: Path) -> None:
    directory = reports.write_sweep(tmp_path, 30)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["sweep", "status", str(directory)]) == 0
    assert "30/30 done (30 finished)" in printed.getvalue()
    wall, cpu, peak = reports.timed("sweep", "status", str(directory))
    assert min(wall, cpu, peak) > 0
