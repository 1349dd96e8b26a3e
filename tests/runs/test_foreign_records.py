"""Runs from elsewhere whose configuration no run can have: shown as unreadable, the others as usual."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fl_platform.cli import main
from fl_platform.dashboard.store import Store
from fl_platform.runs import archive
from fl_platform.runs.frames import load
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
        ("evaluation", {"targets": [None, [1]]}),
        ("evaluation", {"targets": "high"}),
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
    assert key in tables[1].err
    assert "the run cannot be read" in tables[1].err
    state = Store(tmp_path / "both.parquet").look()
    assert state.runs[sound.run_id].log.status is RunStatus.FINISHED
    assert state.runs[other.run_id].log.status is RunStatus.CRASHED
    assert any("the run cannot be read" in warning for warning in state.warnings)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rounds.jsonl", '{"round": 1e30, "test/accuracy": 0.5}\n'),
        ("rounds.jsonl", '{"round": 1, "x\\ud800": 1}\n'),
        ("config.yaml", "algorithm: {name: 2001-01-01}\n"),
        ("config.yaml", "algorithm: {name: !!binary aGVsbG8=}\n"),
        ("config.yaml", 'algorithm: {"x\\uD800": 1}\n'),
        ("result.json", '{"status": "finished", "x\\ud800": 1}'),
    ],
)
def test_what_no_table_can_hold_is_left_out_with_a_warning(name: str, content: str, tmp_path: Path) -> None:
    attempt = tmp_path / "runs" / "abc" / "attempts" / "0001"
    attempt.mkdir(parents=True)
    for file, text in {"config.yaml": "seed: 0\n", "rounds.jsonl": "", "result.json": '{"status": "finished"}'}.items():
        place = attempt if file == "rounds.jsonl" else attempt.parents[1]
        (place / file).write_text(content if file == name else text)
    runs = load(tmp_path / "runs")
    assert len(runs.warnings) == 1
    assert len(runs.rounds) == 0
    assert list(Store(tmp_path / "runs").look().runs) == ["abc"]
