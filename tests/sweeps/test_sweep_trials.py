"""Trials as the launcher sees them: rows as they are written, args that win, what a process is handed."""

import json
from pathlib import Path

import pytest
import yaml
from small_sweeps import quick_sweep

from fl_platform.errors import DiskFull, UserError
from fl_platform.runs import metrics
from fl_platform.runs.liveness import at_work
from fl_platform.runs.status import Ending
from fl_platform.sweeps.definition import Sweep
from fl_platform.sweeps.proposals import grid
from fl_platform.sweeps.states import TrialState
from fl_platform.sweeps.trials import Trial, environment, judge, make_trial


def trial_of(sweep: Sweep) -> Trial:
    [params] = grid(sweep)
    return make_trial(sweep, sweep.directory, 7, params)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return trial_of(quick_sweep(tmp_path, {"seed": {"value": 3}, "num_rounds": {"value": 9}}))


def write_rows(path: Path, rows: list[str], *, mode: str = "a") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, mode, encoding="utf-8") as file:
        file.write("".join(rows))


def row(round: int, salt: float = 0.0) -> str:
    return json.dumps({metrics.ROUND: round, metrics.TEST_ACCURACY: round / 100, metrics.ROUND_SECONDS: salt}) + "\n"


def test_the_launchs_words_win_and_reach_the_parameter_file(tmp_path: Path) -> None:
    sweep = quick_sweep(tmp_path, {"seed": {"value": 3}, "num_rounds": {"value": 9}})  # overrides num_rounds=2
    trial = trial_of(sweep)
    assert (trial.spec.config.num_rounds, trial.spec.config.seed) == (2, 3)
    handed = environment(sweep, trial)
    assert handed["WANDB_SWEEP_ID"] == sweep.identifier
    assert handed["WANDB_RUN_ID"] == trial.spec.run_id
    assert handed["OMP_NUM_THREADS"] == "1"
    saved = yaml.safe_load(Path(handed["WANDB_SWEEP_PARAM_PATH"]).read_text(encoding="utf-8"))
    assert saved == {"wandb_version": 1, "seed": {"value": 3}, "num_rounds": {"value": 2}}


def test_words_leave_some_of_a_sweeps_points(tmp_path: Path) -> None:
    swept = {"seed": {"values": [0, 1, 2]}, "algorithm": {"parameters": {"name": {"values": ["fedavg", "mifa"]}}}}
    sweep = quick_sweep(tmp_path, swept, "seed=[2,0]", "algorithm.name=mifa", "local_lr=0.5")
    trials = [make_trial(sweep, sweep.directory, number, params) for number, params in enumerate(grid(sweep))]
    found = [
        (trial.spec.config.seed, trial.spec.config.algorithm["name"], trial.spec.config.local_lr) for trial in trials
    ]
    assert found == [(2, "mifa", 0.5), (0, "mifa", 0.5)]
    assert [trial.label for trial in trials] == ["seed=2", "seed=0"]
    assert sweep.identifier != quick_sweep(tmp_path, swept).identifier


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("seed=[0,7]", "7 is not among the values .*small.yaml has for seed: 0, 1, 2"),
        ("seed=[]", "leaves none of the values .*small.yaml has for seed: 0, 1, 2"),
    ],
)
def test_words_that_leave_what_is_not_there_are_refused(tmp_path: Path, word: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        quick_sweep(tmp_path, {"seed": {"values": [0, 1, 2]}}, word)


def test_a_list_for_a_key_whose_values_are_lists_is_a_value(tmp_path: Path) -> None:
    sweep = quick_sweep(tmp_path, {"evaluation.targets": {"values": [[0.5], [0.6]]}}, "evaluation.targets=[0.7]")
    assert trial_of(sweep).spec.config.evaluation.targets == [0.7]


@pytest.mark.parametrize(
    ("exit_code", "result", "asked", "state"),
    [
        (0, "finished", None, "finished"),
        (0, None, None, "failed"),
        (3, "diverged", None, "diverged"),
        (130, None, None, "interrupted"),
        (130, None, "stopped", "stopped"),
        (0, "finished", "stopped", "finished"),
        (-15, None, "interrupted", "interrupted"),
        (-9, None, None, "failed"),
        (1, None, None, "failed"),
        (2, None, None, "failed"),
        (4, None, None, "interrupted"),
    ],
)
def test_how_a_process_ends_is_how_its_trial_ends(
    trial: Trial, exit_code: int, result: str | None, asked: str | None, state: str
) -> None:
    if result:
        attempt = trial.files.start_attempt()
        trial.files.complete(attempt, {metrics.STATUS: result, metrics.ROUNDS: 2})
    outcome = judge(
        trial,
        exit_code,
        {metrics.ROUND: 1, metrics.TEST_ACCURACY: 0.5},
        asked_to_stop=TrialState(asked) if asked else None,
    )
    assert outcome.state == state
    assert outcome.is_disk_full == (exit_code == DiskFull.exit_code)
    assert bool(outcome.message) == (state == "failed" or outcome.is_disk_full)
    assert outcome.summary[metrics.TEST_ACCURACY] == 0.5
    assert outcome.summary[metrics.ROUNDS] == (2 if result else 1)


def test_a_trial_that_another_process_still_works_on_has_not_failed(tmp_path):
    """As where a host is cut off: its trial is started elsewhere, and refused there while the first process lives."""
    trial = make_trial(quick_sweep(tmp_path, {"seed": {"values": [0]}}), tmp_path, 0, {"seed": 0})
    with at_work(trial.files.start_attempt()):
        assert judge(trial, 2, {}, asked_to_stop=None).state is TrialState.INTERRUPTED
    failed = judge(trial, 2, {}, asked_to_stop=None)
    assert (failed.state, failed.ending) == (TrialState.FAILED, Ending.CRASHED)
    assert failed.message.startswith("crashed (exit code 2): no output (log: ")
    killed = judge(trial, -9, {}, asked_to_stop=None)
    assert (killed.ending, killed.message.partition(":")[0]) == (Ending.KILLED, "killed (signal 9)")


@pytest.mark.parametrize("name", ["n" * 400, "é" * 300])
def test_a_sweep_with_a_long_name_has_a_directory(name, tmp_path):
    sweep = quick_sweep(tmp_path, {"seed": {"values": [0]}}, name=name)
    sweep.write_copy(sweep.directory)
    assert len(sweep.directory.name.encode()) <= 209
    assert sweep.identifier != quick_sweep(tmp_path, {"seed": {"values": [0]}}, name=name + "x").identifier
