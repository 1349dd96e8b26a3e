"""Runs from elsewhere whose configuration no run can have: shown as unreadable, the others as usual."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fl_platform.cli import main
from fl_platform.dashboard.store import Store
from fl_platform.runs import archive
from fl_platform.runs.status import RunStatus
from tests.synthetic_logs import make_log

TABLE = ["--rows", "algorithm.name", "--columns", "data.dirichlet_omega,cohort_size", "--format", "csv"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cohort_size", "ten"),
        ("cohort_size", float("inf")),
        ("seed", float("nan")),
        ("seed", 10**30),
        ("local_lr", [1]),
        ("seed", True),
    ],
)
def test_a_run_that_cannot_be_read_leaves_the_others_as_they_are(
    key: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    sound = make_log("fedavg", seed=0)
    other = make_log("gradma", seed=1)
    damaged = dataclasses.replace(other, started=float("nan"), config={**other.config, key: value})
    archive.write([sound, damaged], tmp_path / "both.parquet")
    archive.write([sound], tmp_path / "one.parquet")
    tables = []
    for name in ("one", "both"):
        assert main(["report", *TABLE, "--source", f"{name}.parquet"]) == 0
        tables.append(capsys.readouterr())
    assert tables[0].out == tables[1].out
    assert f"{key}=" in tables[1].err
    assert "the run cannot be read" in tables[1].err
    state = Store(tmp_path / "both.parquet").look()
    assert state.runs[sound.run_id].log.status is RunStatus.FINISHED
    assert state.runs[other.run_id].log.status is RunStatus.CRASHED
    assert any("the run cannot be read" in warning for warning in state.warnings)
