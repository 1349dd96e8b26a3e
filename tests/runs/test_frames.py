"""Logs to frames: merging of fragments, statuses, the cache, filters, and the archive."""

import dataclasses
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fl_platform.errors import UserError
from fl_platform.runs import archive, metrics, wandb_logs
from fl_platform.runs import frames as runs
from fl_platform.runs.liveness import is_log_written
from fl_platform.runs.record import RunRecord, merge
from fl_platform.runs.sources import discover
from tests.synthetic_logs import make_log, write_wandb_file


def write(directory: Path, log: RunRecord, stamp: str = "20240101_000000", has_exit: bool = True) -> Path:
    path = directory / "wandb" / f"offline-run-{stamp}-{log.run_id}" / f"run-{log.run_id}.wandb"
    write_wandb_file(path, log, has_exit)
    return path


def test_frames_have_a_row_per_run_and_per_round(tmp_path: Path) -> None:
    logs = [make_log("fedavg", 0), make_log("gradma", 1, algorithm__memory_size=7)]
    for log in logs:
        write(tmp_path, log)
    (tmp_path / "wandb" / "latest-run").symlink_to(next(tmp_path.glob("wandb/offline-run-*")))
    loaded = runs.load([tmp_path])
    assert len(loaded.runs) == 2
    assert loaded.runs["status"].tolist() == ["finished", "finished"]
    row = loaded.runs.set_index("config.algorithm.name").loc["gradma"]
    assert (row["config.seed"], row["config.algorithm.memory_size"], row["config.data.dirichlet_omega"]) == (1, 7, 0.1)
    curve = loaded.rounds.loc[loaded.rounds["run_id"] == row["run_id"]]
    assert curve[metrics.ROUND].tolist() == list(range(1, 41))
    assert curve[metrics.TEST_ACCURACY].tolist() == logs[1].history[metrics.TEST_ACCURACY].to_pylist()


def test_resumed_fragments_merge_and_the_newest_wins_each_round(tmp_path: Path) -> None:
    old = make_log(accuracy=[0.1, 0.2, 0.3, 0.4], run_id="r")
    new = dataclasses.replace(make_log(accuracy=[0.5, 0.6], run_id="r"), started=2000.0)
    write(tmp_path, old, "20240101_000000", has_exit=False)
    write(tmp_path, new, "20240102_000000")
    loaded = runs.load([tmp_path])
    assert loaded.rounds[metrics.TEST_ACCURACY].tolist() == [0.5, 0.6, 0.3, 0.4]
    assert loaded.rounds[metrics.ROUND].tolist() == [1, 2, 3, 4]
    assert loaded.runs["status"].tolist() == ["finished"]


def test_a_finished_run_is_not_spoilt_by_a_later_crash() -> None:
    finished = make_log(accuracy=[0.1, 0.2, 0.3], run_id="r")
    crashed = dataclasses.replace(make_log(accuracy=[0.9], run_id="r", status="crashed"), started=5000.0)
    (merged,) = merge([crashed, finished])
    assert merged.status == "finished"
    assert merged.history[metrics.TEST_ACCURACY].to_pylist() == [0.1, 0.2, 0.3]


def test_runs_of_an_agent_merge_by_the_id_of_their_configuration() -> None:
    local = make_log(accuracy=[0.1], run_id="hash", run__id="hash", status="crashed")
    agent = make_log(accuracy=[0.2], run_id="agents-own", run__id="hash")
    assert [log.run_id for log in merge([local, agent])] == ["hash"]


def test_rows_of_one_round_become_one_and_rows_without_a_round_go() -> None:
    history = pa.table({"round": [1.0, 1.0, None, 2.0], "a": [1.0, None, 9.0, 3.0], "b": [None, 2.0, 9.0, None]})
    (merged,) = merge([dataclasses.replace(make_log(), history=history)])
    frame = merged.history.to_pandas()
    assert frame["round"].tolist() == [1, 2]
    assert frame["a"].tolist() == [1.0, 3.0]
    assert frame["b"][0] == 2.0
    assert np.isnan(frame["b"][1])


def test_statuses(tmp_path: Path) -> None:
    diverged = write(tmp_path, make_log("moon", status="diverged"))
    interrupted = write(tmp_path, make_log("mifa", status="interrupted"))
    fresh = write(tmp_path, make_log("fedavg"), has_exit=False)
    stale = write(tmp_path, make_log("fedprox"), has_exit=False)
    long_ago = time.time() - 86_400
    os.utime(stale, (long_ago, long_ago))
    found = runs.load([tmp_path]).runs.set_index("source")["status"]
    assert found[[str(diverged), str(interrupted), str(fresh), str(stale)]].tolist() == [
        "diverged",
        "interrupted",
        "running",
        "crashed",
    ]


def test_pid_in_the_log_directory_decides_on_this_machine(tmp_path: Path) -> None:
    import socket
    import subprocess
    import sys

    path = tmp_path / "run-x.wandb"
    path.write_bytes(b"")
    (tmp_path / "logs").mkdir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for pid, expected in ((os.getpid(), True), (ended.pid, False)):
        line = f"2026-11-16 13:00:47,731 INFO    MainThread:{pid} [wandb_setup.py:_flush():81] Current SDK version\n"
        (tmp_path / "logs" / "debug.log").write_text(line)
        assert is_log_written(path, socket.gethostname()) is expected
    assert is_log_written(path, "another-machine")


def test_conflicting_types_of_a_metric_become_text() -> None:
    one = make_log(seed=0, rounds=2, columns={"x": [1.0, 2.0]})
    two = make_log(seed=1, rounds=2, columns={"x": ['"a"', '"b"']})
    frame = runs.to_frames(merge([one, two])).rounds
    assert sorted(frame["x"]) == ['"a"', '"b"', "1.0", "2.0"]


def test_cache_gives_the_same_and_follows_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, make_log(rounds=5, run_id="r", columns={"l": [[1.0, 2.0]] * 5}))
    cold = runs.load([tmp_path])
    assert list((tmp_path / ".cache").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(wandb_logs, "read", lambda path: pytest.fail("the cache was not used"))
        warm = runs.load([tmp_path])
    pd.testing.assert_frame_equal(cold.runs, warm.runs)
    pd.testing.assert_frame_equal(cold.rounds, warm.rounds)
    write_wandb_file(path, make_log(rounds=6, run_id="r"))
    assert len(runs.load([tmp_path]).rounds) == 6


def test_damaged_or_unwritable_cache_is_no_error(tmp_path: Path) -> None:
    write(tmp_path, make_log(rounds=5))
    runs.load([tmp_path])
    (entry,) = (tmp_path / ".cache").iterdir()
    entry.write_bytes(b"garbage")
    assert len(runs.load([tmp_path]).rounds) == 5
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    assert len(runs.load([tmp_path / "wandb"], cache_dir=blocked / "cache").rounds) == 5


def test_archive_round_trip_and_equal_bytes(tmp_path: Path) -> None:
    logs = merge(
        [make_log("fedavg", 0, columns={metrics.TRAIN_LOSS: np.linspace(1, 0, 40)}), make_log("gradma", 1, rounds=7)]
    )
    archive.write(logs, tmp_path / "a.parquet")
    archive.write(reversed(logs), tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    before, after = runs.to_frames(logs), runs.load([tmp_path / "a.parquet"])
    pd.testing.assert_frame_equal(before.runs.drop(columns="source"), after.runs.drop(columns="source"))
    exact = [
        "run_id",
        metrics.ROUND,
        metrics.TEST_ACCURACY,
        metrics.FORGETTING,
        metrics.TOTAL_BYTES,
        metrics.TOTAL_SECONDS,
    ]
    pd.testing.assert_frame_equal(before.rounds[exact], after.rounds[exact])
    pd.testing.assert_frame_equal(before.rounds, after.rounds, check_like=True, rtol=1e-6)
    archive.write(merge(archive.read(tmp_path / "a.parquet")), tmp_path / "c.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "c.parquet").read_bytes()


def test_links_to_runs_elsewhere_are_followed(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "runs", tmp_path / "disk"
    for place in (here / "own", elsewhere / "one", elsewhere / "many" / "two", elsewhere / "many" / "deep" / "three"):
        (place / "attempts").mkdir(parents=True)
    (elsewhere / "sweep").mkdir()
    (elsewhere / "sweep" / "ledger.sqlite").touch()
    targets = {"a": elsewhere / "one", "b": elsewhere / "many", "c": elsewhere / "sweep", "again": here / "own"}
    for name, target in {**targets, "up": tmp_path, "root": Path("/"), "itself": here, "gone": tmp_path / "no"}.items():
        (here / name).symlink_to(target)
    found = discover(here)
    assert {path.name for path in found.runs} == {"own", "one", "two"}
    assert found.sweeps == [elsewhere / "sweep"]


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        runs.load([tmp_path / "absent"])
    with pytest.raises(UserError, match="holds no runs: neither run directories nor W&B logs"):
        runs.load([tmp_path])
    other = tmp_path / "x.parquet"
    other.write_text("hello")
    with pytest.raises(UserError, match="neither a W&B log nor an archive"):
        runs.load([other])
    with pytest.raises(UserError, match="not of the form"):
        runs.load(["wandb:only-one-part"])


def test_select_filters_and_names_what_is_unknown() -> None:
    loaded = runs.to_frames(merge([make_log("fedavg", seed) for seed in range(3)] + [make_log("moon", 0)]))
    kept = runs.select(loaded, {"algorithm.name": "fedavg", "seed": [0, 2]})
    assert kept.runs["config.seed"].tolist() == [0, 2]
    assert set(kept.rounds["run_id"]) == set(kept.runs["run_id"])
    with pytest.raises(UserError, match=r"did you mean 'algorithm\.name'"):
        runs.select(loaded, {"algorithm.nam": "x"})
    with pytest.raises(UserError, match="there is fedavg, moon"):
        runs.select(loaded, {"algorithm.name": "x"})
