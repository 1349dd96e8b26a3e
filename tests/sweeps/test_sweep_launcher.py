"""Whole sweeps of quick trials inside the test's process: results, resuming, sharing, searching, failing."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_sweeps import entries_of, launch_here, quick_sweep

from fl_platform.cli.sweep import forget_wandb
from fl_platform.errors import DiskFull
from fl_platform.federation.launch import launch
from fl_platform.runs import metrics
from fl_platform.runs.directory import RunDirectory
from fl_platform.sweeps.display import Display, LiveDisplay
from fl_platform.sweeps.launcher import Launcher
from fl_platform.sweeps.ledger import Ledger
from fl_platform.sweeps.pools import InProcessPool
from fl_platform.sweeps.status import Status
from fl_platform.sweeps.trials import Trial, make_trial

SEEDS = {"seed": {"values": [0, 1, 2]}}


def test_a_grid_runs_to_its_end_and_keeps_what_it_has(tmp_path: Path) -> None:
    sweep = quick_sweep(tmp_path, SEEDS)
    status = launch_here(sweep)
    assert status.counts["finished"] == status.total == 3
    for entry in entries_of(sweep):
        stored = RunDirectory(tmp_path / "runs", entry.run_id or "").result()
        assert stored is not None
        assert entry.summary[metrics.FINGERPRINT] == stored[metrics.FINGERPRINT]
        assert entry.summary[metrics.ROUNDS] == 2
    before = [entry.time for entry in entries_of(sweep)]
    assert launch_here(sweep).counts["finished"] == 3
    assert [entry.time for entry in entries_of(sweep)] == before


def test_the_cap_counts_over_launches(tmp_path: Path) -> None:
    sweep = quick_sweep(tmp_path, SEEDS)
    assert launch_here(sweep, cap=2).counts["finished"] == 2
    assert launch_here(sweep, cap=2).counts["finished"] == 2
    assert launch_here(sweep).counts["finished"] == 3


def test_fields_of_other_algorithms_do_not_multiply_the_runs(tmp_path: Path) -> None:
    """A flat grid over mu makes two points of FedAvg, which has no mu: one run."""
    command = ["${interpreter}", "-m", "fl_platform", "run", "--skip-finished", "--drop-unused", "${args_no_hyphens}"]
    grid = {"algorithm.name": {"values": ["fedavg", "fedprox"]}, "algorithm.mu": {"values": [0.1, 0.2]}}
    sweep = quick_sweep(tmp_path, grid, command=command)
    status = launch_here(sweep)
    assert (status.counts["finished"], status.counts["shared"], status.done) == (3, 1, 4)
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == 3


def test_a_result_of_another_sweep_is_taken_over(tmp_path: Path) -> None:
    launch_here(quick_sweep(tmp_path, SEEDS))
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/result.json")}
    wider = quick_sweep(tmp_path, {"seed": {"values": [0, 1, 2, 3]}})
    assert launch_here(wider).counts["finished"] == 4
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_an_interrupted_trial_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """A checkpoint of round 1 of 2 that another process left: the trial's rows continue it, with equal results."""
    whole = quick_sweep(tmp_path, {"seed": {"value": 5}}, f"output.dir={tmp_path / 'whole'}", "checkpoint.every=1")
    launch_here(whole)
    sweep = quick_sweep(tmp_path, {"seed": {"value": 5}}, "checkpoint.every=1")
    trial = make_trial(sweep, sweep.directory, 0, {"seed": 5})
    launch(trial.spec)
    trial.files.result_file.unlink()
    newest = trial.files.newest_checkpoint()
    assert newest is not None
    newest.unlink()  # leaves round 1
    launch_here(sweep)
    (entry,), (other,) = entries_of(sweep), entries_of(whole)
    assert entry.summary[metrics.FINGERPRINT] == other.summary[metrics.FINGERPRINT]
    assert [path.name for path in trial.files.attempts.iterdir()] == ["0001"]  # no second attempt was begun


def test_failures_are_tried_again_and_reported_with_their_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FL_DATA_ROOT", raising=False)
    sweep = quick_sweep(tmp_path, {"seed": {"values": [0, 1]}}, "data.name=mnist", f"data.root={tmp_path}")
    status = launch_here(sweep, retries=2)
    assert status.counts["failed"] == 2
    assert [entry.failures for entry in status.failed] == [3, 3]
    assert "mnist" in status.failed[0].data["message"]
    assert capsys.readouterr().err.count("starts as run") == 6
    assert launch_here(sweep, retries=2).failed[0].failures == 3


def test_divergence_is_a_result(tmp_path: Path) -> None:
    sweep = quick_sweep(tmp_path, {"server_lr": {"value": 1e30}}, "num_rounds=5")
    assert launch_here(sweep).counts["diverged"] == 1
    assert launch_here(sweep).counts["diverged"] == 1
    assert entries_of(sweep)[0].attempt == 1


@pytest.mark.parametrize("method", ["random", "bayes"])
def test_a_search_keeps_its_points_over_launches(tmp_path: Path, method: str) -> None:
    parameters = {"local_lr": {"distribution": "log_uniform_values", "min": 1e-3, "max": 1.0}}
    metric = {"name": metrics.TOP_ACCURACY, "goal": "maximize"}
    sweep = quick_sweep(tmp_path, parameters, method=method, metric=metric, run_cap=3)
    launch_here(sweep, cap=1)
    status = launch_here(sweep)
    assert status.counts["finished"] == 3
    points = [entry.params["local_lr"] for entry in entries_of(sweep)]
    assert len(set(points)) == 3
    again = quick_sweep(
        tmp_path, parameters, f"output.dir={tmp_path / 'again'}", method=method, metric=metric, run_cap=3
    )
    launch_here(again)
    assert [entry.params["local_lr"] for entry in entries_of(again)] == points


def test_early_termination_stops_trials_in_the_launchers_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fl_platform.sweeps.launcher.LOOK_SECONDS", 0.0)
    stop = {"type": "hyperband", "max_iter": 9, "s": 2, "eta": 3}
    metric = {"name": metrics.TEST_ACCURACY, "goal": "maximize"}
    rates = {"local_lr": {"values": [0.5, 0.3, 1e-6, 1e-7]}}
    sweep = quick_sweep(tmp_path, rates, "num_rounds=9", metric=metric, early_terminate=stop)
    status = launch_here(sweep)
    states = {entry.params["local_lr"]: entry.state for entry in entries_of(sweep)}
    assert (states[0.5], states[1e-7]) == ("finished", "stopped")
    assert status.counts["left"] == 0
    rounds = [entry.summary[metrics.ROUNDS] for entry in entries_of(sweep) if entry.state == "stopped"]
    assert 0 < max(rounds) < 9


class StopAfterTwo(Display):
    """Asks for a stop, as another process would, when the second trial has finished."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger, self._finished = ledger, 0

    def say(self, message: str) -> None:
        self._finished += "finished" in message
        if self._finished == 2:
            self._ledger.request_stop()


def test_a_stop_between_trials_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fl_platform.sweeps.launcher.LOOK_SECONDS", 0.0)
    sweep = quick_sweep(tmp_path, {"seed": {"values": list(range(50))}})
    with Ledger(sweep.directory) as ledger, Ledger(sweep.directory) as other:
        ledger.launch([])
        display = StopAfterTwo(other)
        launcher = Launcher(sweep, sweep.directory, ledger, InProcessPool(forget_wandb), display, retries=0, cap=None)
        status = launcher.run()
    assert launcher.stopping
    assert (status.counts["finished"], status.counts["left"]) == (2, 48)


class StopAtRound(Display):
    """Asks for a stop while a trial is under way."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        super().__init__()
        self._ledger, self._number = ledger, number

    def update(self, status: Status, running: list[tuple[Trial, dict[str, Any]]]) -> None:
        if any(row.get(metrics.ROUND) == self._number for _, row in running):
            self._ledger.request_stop()


def test_a_stop_ends_the_trial_in_the_launchers_process_after_its_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fl_platform.sweeps.launcher.LOOK_SECONDS", 0.0)
    sweep = quick_sweep(tmp_path, SEEDS, "num_rounds=50")
    with Ledger(sweep.directory) as ledger, Ledger(sweep.directory) as other:
        ledger.launch([])
        pool, display = InProcessPool(forget_wandb), StopAtRound(other, 5)
        status = Launcher(sweep, sweep.directory, ledger, pool, display, retries=0, cap=None).run()
    assert status.counts["finished"] == 0
    (interrupted,) = [entry for entry in entries_of(sweep) if entry.state == "interrupted"]
    assert 5 <= interrupted.summary[metrics.ROUNDS] < 8
    assert launch_here(sweep).counts["left"] == 0


def test_changing_the_chosen_values_makes_another_sweep(tmp_path: Path) -> None:
    chosen = tmp_path / "chosen.yaml"
    parameters = {"seed": {"value": 0}, "chosen": {"value": str(chosen)}}
    absent = quick_sweep(tmp_path, parameters).identifier
    chosen.write_text(json.dumps({"chosen": {}}), encoding="utf-8")
    empty = quick_sweep(tmp_path, parameters).identifier
    assert absent != empty
    assert quick_sweep(tmp_path, parameters).identifier == empty


def test_a_missing_chosen_file_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parameters = {"seed": {"values": [0, 1]}, "chosen": {"value": str(tmp_path / "none.yaml")}}
    assert launch_here(quick_sweep(tmp_path, parameters)).counts["finished"] == 2
    assert capsys.readouterr().err.count("none.yaml does not exist: defaults are used") == 1


def test_the_live_table_shows_trials_rounds_and_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = quick_sweep(tmp_path, SEEDS)
    status = launch_here(sweep, cap=2)
    trial = make_trial(sweep, sweep.directory, 2, {"seed": 2})
    display = LiveDisplay()
    display.say("[a message] in brackets")
    display.update(status, [(trial, {metrics.ROUND: 1, metrics.TEST_ACCURACY: 0.25, metrics.TOP_ACCURACY: 0.5})])
    display.close()
    shown = capsys.readouterr().err
    for part in (
        "[a message] in brackets",
        trial.spec.run_id,
        "1/2",
        "0.2500",
        "0.5000",
        "seed=2",
        "\n2/2 done (2 finished)",
    ):
        assert part in shown


class FullDiskPool:
    """A pool whose trials all end with the exit code of a full disk."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self._codes: dict[int, int] = {}

    def capacity(self) -> int:
        return 1

    def start(self, trial: Trial, variables: dict[str, str]) -> int:
        self.started.append(trial.number)
        self._codes[trial.number] = DiskFull.exit_code
        return 0

    def ended(self) -> dict[int, int]:
        codes, self._codes = self._codes, {}
        return codes

    def stop(self, number: int) -> None:
        """A trial has ended before it could be asked to."""

    def kill(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is held."""


def test_a_trial_that_finds_the_disk_full_stops_the_sweep_and_has_not_failed(tmp_path: Path) -> None:
    sweep = quick_sweep(tmp_path, SEEDS)
    sweep.write_copy(sweep.directory)
    pool = FullDiskPool()
    with Ledger(sweep.directory) as ledger:
        ledger.launch([])
        launcher = Launcher(sweep, sweep.directory, ledger, pool, Display(), retries=0, cap=None)
        with pytest.raises(DiskFull, match=r"output\.dir=.* No space left on device \(trial 0, log: .*same command"):
            launcher.run()
    assert pool.started == [0]
    assert [entry.state for entry in entries_of(sweep)] == ["interrupted", "proposed", "proposed"]
    assert launch_here(sweep).counts["finished"] == 3
