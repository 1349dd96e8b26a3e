"""What the dashboard knows of files: live rounds, states, sweeps, logs without a run directory, what is gone."""

import shutil
from pathlib import Path

import pytest

from fl_platform.dashboard.store import Store
from fl_platform.errors import UserError
from fl_platform.reporting.shown import row
from fl_platform.runs import archive, metrics
from fl_platform.sweeps.definition import read_sweep
from fl_platform.sweeps.ledger import Ledger
from tests.dashboard.made_runs import make_old, rows, write_rows, write_run
from tests.synthetic_logs import make_log, write_wandb_file


def status(store: Store, run_id: str) -> str:
    return store.look().runs[run_id].log.status


def test_a_live_run_moves_on_and_ends(tmp_path: Path) -> None:
    path = write_run(tmp_path, "a1", status=None, made=rows(rounds=3))
    store = Store(tmp_path)
    first = store.look()
    assert first.runs["a1"].log.status == "running"
    assert store.look().version == first.version, "nothing new"
    write_rows(path, rows(rounds=5)[3:], "a")
    second = store.look()
    assert second.version > first.version
    assert row(second.runs["a1"])["round"] == 5
    write_run(tmp_path, "a1", status="finished", made=rows(rounds=6))
    third = store.look()
    assert (third.runs["a1"].log.status, row(third.runs["a1"])["round"]) == ("finished", 6)


def test_only_what_changed_has_a_new_version(tmp_path: Path) -> None:
    write_run(tmp_path, "a1")
    path = write_run(tmp_path, "a2", status=None)
    store = Store(tmp_path)
    before = store.look()
    write_rows(path, [{**rows()[0], metrics.ROUND: 21}], "a")
    after = store.look()
    assert after.versions["a1"] == before.versions["a1"]
    assert after.versions["a2"] == after.version > before.version


def test_methods_with_the_same_label_are_told_apart(tmp_path: Path) -> None:
    """Grouping by algorithm would otherwise average them; also when the second one comes later."""
    own = {"data_label": "Digits", "label": "Mine"}
    write_run(tmp_path, "a1", "mine", run=own)
    write_run(tmp_path, "a2", "not_fedavg", run={**own, "label": "FedAvg"})
    write_run(tmp_path, "a3", "fedavg")
    store = Store(tmp_path)
    first = store.look()
    labels = {run_id: row(run)["algorithm"] for run_id, run in first.runs.items()}
    assert labels == {"a1": "Mine", "a2": "FedAvg (not_fedavg)", "a3": "FedAvg"}
    assert store.look().version == first.version, "nothing new"
    write_run(tmp_path, "a4", "also_mine", run=own)
    second = store.look()
    assert {row(second.runs[run_id])["algorithm"] for run_id in ("a1", "a4")} == {"Mine", "Mine (mine)"}
    changed = {run_id for run_id, version in second.versions.items() if version > first.version}
    assert {"a1", "a4"} <= changed, "the page is told of the new label of a1"
    assert "a3" not in changed
    assert len({row(run)["color"] for run in second.runs.values()}) == 4, "as in the charts"


def test_states_of_runs_without_a_result(tmp_path: Path) -> None:
    for run_id in ("quiet", "stopped", "killed"):
        write_run(tmp_path, run_id, status=None)
    ended = make_log(run_id="stopped", status="interrupted")
    write_wandb_file(tmp_path / "wandb" / "offline-run-1-stopped" / "run-stopped.wandb", ended)
    killed = tmp_path / "wandb" / "offline-run-1-killed" / "run-killed.wandb"
    write_wandb_file(killed, make_log(run_id="killed"), has_exit=False)
    make_old(tmp_path)
    write_run(tmp_path, "fresh", status=None)
    write_run(tmp_path, "bad", status="diverged")
    store = Store(tmp_path)
    found = {run_id: run.log.status for run_id, run in store.look().runs.items()}
    assert found == {
        "quiet": "crashed",
        "stopped": "interrupted",
        "killed": "crashed",
        "fresh": "running",
        "bad": "diverged",
    }


def test_a_long_round_is_not_a_death(tmp_path: Path) -> None:
    slow = [{**one, metrics.ROUND_SECONDS: 3000.0} for one in rows(rounds=2)]
    write_run(tmp_path, "slow", status=None, made=slow)
    make_old(tmp_path)
    assert status(Store(tmp_path), "slow") == "running"


def test_the_newest_attempt_counts_until_one_is_complete(tmp_path: Path) -> None:
    write_run(tmp_path, "a1", status=None, made=rows(rounds=4))
    write_rows(tmp_path / "a1" / "attempts" / "0002" / "rounds.jsonl", rows(rounds=2))
    store = Store(tmp_path)
    assert row(store.look().runs["a1"])["round"] == 2
    write_run(tmp_path, "a1", made=rows(rounds=4))
    assert row(store.look().runs["a1"])["round"] == 4


@pytest.mark.parametrize("name", ["result.json", "config.yaml"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff\xfe", b"a: [", b"[" * 100_000, b"{a: " * 1500 + b"}" * 1500]
)
def test_damaged_files_do_not_stop_the_look(tmp_path: Path, name: str, content: bytes) -> None:
    write_run(tmp_path, "good")
    write_run(tmp_path, "hurt", status=None)
    (tmp_path / "hurt" / name).write_bytes(content)
    found = Store(tmp_path).look().runs
    assert found["good"].log.status == "finished"
    assert len(found["hurt"].log.history) == 20


def test_logs_without_a_directory_are_shown_and_others_are_not_read_twice(tmp_path: Path) -> None:
    write_run(tmp_path, "both")
    for run_id in ("both", "alone"):
        log = make_log("moon", run_id=run_id, rounds=7)
        write_wandb_file(tmp_path / "wandb" / f"offline-run-1-{run_id}" / f"run-{run_id}.wandb", log)
    agent = make_log("moon", run_id="agents-own-id", run__id="both")
    write_wandb_file(tmp_path / "wandb" / "offline-run-2-x" / "run-x.wandb", agent)
    (tmp_path / "wandb" / "offline-run-3-y").mkdir()
    (tmp_path / "wandb" / "offline-run-3-y" / "run-y.wandb").write_bytes(b"no log at all")
    state = Store(tmp_path).look()
    assert {run_id: run.log.status for run_id, run in state.runs.items()} == {
        "both": "finished", "alone": "finished", "y": "crashed"
    }  # fmt: skip
    assert state.runs["both"].algorithm == "fedavg"
    assert row(state.runs["alone"])["round"] == 7
    assert any("run-y.wandb is not a W&B log" in text for text in state.warnings)


def test_a_removed_run_disappears(tmp_path: Path) -> None:
    write_run(tmp_path, "a1")
    write_run(tmp_path, "a2")
    store = Store(tmp_path)
    store.look()
    shutil.rmtree(tmp_path / "a1")
    state = store.look()
    assert set(state.runs) == {"a2"}
    assert state.complete_since == state.version


def test_a_run_that_was_moved_away_and_back_is_shown_again(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "a1")
    write_run(tmp_path / "runs", "a2")
    store = Store(tmp_path / "runs")
    store.look()
    (tmp_path / "runs" / "a1").rename(tmp_path / "a1")
    assert set(store.look().runs) == {"a2"}
    (tmp_path / "a1").rename(tmp_path / "runs" / "a1")
    assert set(store.look().runs) == {"a1", "a2"}


def test_a_directory_that_is_replaced_is_noticed(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "a1", made=rows(seed=1))
    write_run(tmp_path / "other", "a1", made=rows(seed=2))
    write_run(tmp_path / "other", "a3")
    store = Store(tmp_path / "runs")
    before = store.look().runs["a1"].log.history["test/accuracy"].to_pylist()
    (tmp_path / "runs").rename(tmp_path / "gone")
    assert not store.look().runs
    (tmp_path / "other").rename(tmp_path / "runs")
    after = store.look().runs
    assert set(after) == {"a1", "a3"}
    assert after["a1"].log.history["test/accuracy"].to_pylist() != before


def test_several_outputs_below_one_path(tmp_path: Path) -> None:
    write_run(tmp_path / "one", "a1")
    write_run(tmp_path / "two" / "deeper", "a2")
    assert set(Store(tmp_path).look().runs) == {"a1", "a2"}


def test_an_archive_can_be_shown(tmp_path: Path) -> None:
    archive.write([make_log("gradma", 1)], tmp_path / "runs.parquet")
    (run,) = Store(tmp_path / "runs.parquet").look().runs.values()
    assert (run.algorithm, run.log.status) == ("gradma", "finished")


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="absent: no such directory"):
        Store(tmp_path / "absent")


SWEEP = """
name: small
method: grid
metric: {name: test/top_accuracy, goal: maximize}
command: [python, -m, fl_platform, run, "${args_no_hyphens}"]
parameters:
  seed: {values: [0, 1, 2, 3]}
"""


def test_a_sweep_is_read_from_its_ledger(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SWEEP, encoding="utf-8")
    sweep = read_sweep(tmp_path / "small.yaml")
    directory = tmp_path / "sweeps" / sweep.identifier
    sweep.write_copy(directory)
    for seed in range(3):
        write_run(tmp_path, f"r{seed}", seed=seed, status="finished" if seed == 0 else None)
    make_old(tmp_path)
    store = Store(tmp_path)
    with Ledger(directory) as ledger:
        ledger.launch([])
        ledger.propose([{"seed": seed} for seed in range(4)])
        for seed in range(3):
            ledger.record(seed, "started", run_id=f"r{seed}", attempt=1)
        ledger.record(0, "finished", run_id="r0", data={"summary": {metrics.TOP_ACCURACY: 0.75}})
        ledger.record(2, "failed", run_id="r2", data={"message": "exit code 1; <b>no</b> memory"})
        state = store.look()
        (shown,) = state.sweeps
        assert shown.values["counts"] == {
            "finished": 1, "diverged": 0, "stopped": 0, "failed": 1, "shared": 0, "running": 1, "left": 1
        }  # fmt: skip
        assert (shown.values["done"], shown.values["total"], shown.values["is_live"]) == (2, 4, True)
        assert shown.values["best"] == {"run": "r0", "value": 0.75, "point": "seed=0"}
        assert shown.values["failures"] == ["trial 2: exit code 1; <b>no</b> memory"]
        assert {run_id: run.log.status for run_id, run in state.runs.items()} == {
            "r0": "finished", "r1": "running", "r2": "crashed"
        }  # fmt: skip
        trial = state.trial("r1")
        assert trial is not None
        assert (trial.number, trial.log) == (1, directory / "logs" / "00001-r1.log")
        assert state.runs["r1"].log.sweep == sweep.identifier


def test_a_ledger_that_is_none_is_shown_as_such(tmp_path: Path) -> None:
    directory = tmp_path / "sweeps" / "odd"
    directory.mkdir(parents=True)
    (directory / "ledger.sqlite").write_text("not a database", encoding="utf-8")
    (shown,) = Store(tmp_path).look().sweeps
    assert "odd is not a sweep directory" in shown.values["error"]
