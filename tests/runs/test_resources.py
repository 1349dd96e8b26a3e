"""The record of what a run uses of its machine."""

import json
import time
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.dashboard.usage import usage_charts
from fl_platform.runs import resources


def test_usage_counts_the_work_of_this_process() -> None:
    usage = resources.Usage()
    started = time.process_time()
    while time.process_time() - started < 0.05:
        pass
    share = usage.look()[resources.CPU]
    assert 0 < share < 6400
    assert usage.seconds < 1
    assert 1e7 < resources.memory_bytes() < 1e12


def test_a_run_records_and_the_dashboard_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["num_rounds=3", "num_workers=10", "cohort_size=2", "local_steps=1", "tracking.mode=disabled"]
    assert main(["run", *small]) == 0
    assert not list(tmp_path.rglob(resources.FILE)), "shorter than tracking.resources_every"
    assert main(["run", *small, "seed=1", "tracking.resources_every=1e-9"]) == 0
    (path,) = tmp_path.rglob(resources.FILE)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row["round"] for row in rows] == [1, 2, 3]
    path.write_text(path.read_text(encoding="utf-8") + '{"time": "no"}\nhalf a li', encoding="utf-8")
    found = resources.read(path)
    assert found[resources.MEMORY] == [row[resources.MEMORY] for row in rows], "damaged rows are left out"
    assert found["seconds"][0] == 0
    charts = {chart["metric"]: chart["lines"][0] for chart in usage_charts(path)}
    assert charts.keys() == {"system/cpu_percent", "system/memory_bytes"}
    assert len(charts["system/cpu_percent"]["x"]) == 3
    assert usage_charts(tmp_path / "absent") == []
