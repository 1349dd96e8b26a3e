"""What a sweep meets from outside: damaged files of its trials, impatient users, hostile YAMLs."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.dashboard.sweeps import read_sweep
from fl_platform.runs.liveness import at_work
from fl_platform.sweeps.display import Display
from fl_platform.sweeps.launcher import Launcher
from fl_platform.sweeps.ledger import Ledger
from fl_platform.sweeps.pools import ProcessPool
from fl_platform.sweeps.states import TrialState
from fl_platform.sweeps.trials import last_line, make_trial, sweep_tag
from tests.sweeps.small_sweeps import QUICK, launch_here, quick_sweep, write_sweep


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"[" * 5000, b"1e999"])
def test_damaged_rounds_of_one_trial_are_named_and_the_others_go_on(damage: bytes, tmp_path: Path, capsys) -> None:
    metric = {"name": "test/accuracy", "goal": "maximize"}
    sweep = quick_sweep(tmp_path, {"local_lr": {"min": 0.01, "max": 0.1}}, method="bayes", metric=metric, run_cap=2)
    launch_here(sweep, cap=1)
    [rounds] = (tmp_path / "runs").glob("*/attempts/0001/rounds.jsonl")
    content = rounds.read_bytes()
    rounds.write_bytes(content[:1] + damage + content[1:])
    status = launch_here(sweep)
    assert status.counts[TrialState.FINISHED] == 2
    assert f"{rounds}: 1 rows are damaged and left out" in capsys.readouterr().err


def test_ctrl_c_twice_at_once_ends_with_130(tmp_path: Path, capsys) -> None:
    path = write_sweep(tmp_path / "small.yaml", {"seed": {"values": [0, 1]}})
    output = tmp_path / "runs"

    def interrupt() -> None:
        while not [*output.glob("sweeps/*/logs/*.log")]:
            time.sleep(0.01)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    thread = threading.Thread(target=interrupt)
    thread.start()
    code = main(["sweep", "run", str(path), *QUICK, f"output.dir={output}", "--jobs", "1"])
    thread.join()
    assert code == 130
    assert "0/2 done" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("parameters", "size"),
    [
        ({"seed": {"min": 0, "max": 10**12}}, 10**12 + 1),
        ({key: {"values": [*range(1, 1001)]} for key in ("seed", "num_rounds", "local_steps", "batch_size")}, 10**12),
        ({"local_lr": {"distribution": "q_uniform", "min": 0.0, "max": 1e6, "q": 1e-300}}, 10**18),
    ],
)
@pytest.mark.parametrize("command", [["check"], ["run", "--cap", "1"]])
def test_a_grid_that_is_too_large_is_refused_with_its_size(command, parameters, size, tmp_path, capsys) -> None:
    path = write_sweep(tmp_path / "large.yaml", parameters)
    action, *options = command
    (tmp_path / "runs").mkdir()
    began = time.process_time()
    assert main(["sweep", action, str(path), *options, *([] if action == "check" else [f"output.dir={tmp_path}"])]) == 2
    error = capsys.readouterr().err
    assert f"the grid has {size} points" in error
    assert time.process_time() - began < 5
    assert not [*tmp_path.glob("sweeps/*")]


@pytest.mark.parametrize(
    "text", ["{seed: {valueq: [0]}}", "{seed: 3}", "{seed: {values: 3}}", "{seed: {min: 0, max: x}}"]
)
def test_a_damaged_yaml_of_a_launched_sweep_is_named(text: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "sweep.yaml").write_text(f"method: grid\nparameters: {text}\n")
    (tmp_path / "overrides.json").write_text("[]")
    with Ledger(tmp_path) as ledger:
        ledger.propose([{"seed": 0}])
    assert main(["sweep", "status", str(tmp_path)]) == 2
    assert "sweep.yaml: parameters.seed=" in capsys.readouterr().err
    assert read_sweep(tmp_path).values["total"] == 1  # the dashboard needs only the ledger


def test_a_long_name_of_a_sweep_becomes_a_tag_that_wandb_takes(tmp_path: Path) -> None:
    assert sweep_tag("short") == "sweep:short"
    tags = {sweep_tag("x" * length) for length in (58, 59, 200)}
    assert len(tags) == 3
    assert max(map(len, tags)) == 64
    sweep = quick_sweep(tmp_path, {"seed": {"values": [0]}}, name="n" * 100)
    assert make_trial(sweep, tmp_path, 0, {"seed": 0}).spec.config.tracking.tags == [sweep_tag("n" * 100)]


@pytest.mark.parametrize("tag", ["", "t" * 65])
def test_a_tag_that_wandb_refuses_is_refused_before_a_run(tag: str, tmp_path: Path, capsys) -> None:
    assert main(["run", f"tracking.tags=['{tag}']", f"output.dir={tmp_path}"]) == 2
    path = write_sweep(tmp_path / "small.yaml", {"seed": {"values": [0]}})
    assert main(["sweep", "run", str(path), f"tracking.tags=['{tag}']", f"output.dir={tmp_path}", "--jobs", "1"]) == 1
    assert capsys.readouterr().err.count("a tag has 1 to 64 characters") == 2


def test_escapes_of_a_trial_do_not_reach_the_terminal(tmp_path: Path, capsys) -> None:
    log = tmp_path / "trial.log"
    log.write_bytes(b"line\n\x1b]0;title\x07\x1b[2Jlast\n")
    assert last_line(log) == "\\x1b]0;title\\x07\\x1b[2Jlast"
    Display().say("failed: \x1b[2J\u202e")
    assert capsys.readouterr().err == "failed: \\x1b[2J\\u202e\n"


def test_a_trial_refused_for_a_process_that_ends_at_once_has_not_failed(tmp_path: Path) -> None:
    """Another process, such as one of a host that was cut off, ends between a trial's refusal and its judgement."""
    sweep = quick_sweep(tmp_path, {"seed": {"values": [0]}})
    sweep.write_copy(sweep.directory)
    trial = make_trial(sweep, sweep.directory, 0, {"seed": 0})
    attempt = trial.files.start_attempt()

    def hold() -> None:
        with at_work(attempt):
            is_held.set()
            while "is being written by process" not in last_line(trial.log):
                time.sleep(0.001)

    is_held = threading.Event()
    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    is_held.wait()
    with Ledger(sweep.directory) as ledger:
        pool = ProcessPool(1, [], ledger.launch([]))
        status = Launcher(sweep, sweep.directory, ledger, pool, Display(), retries=0, cap=None).run()
        [entry] = ledger.entries()
    holder.join()
    assert status.counts[TrialState.FINISHED] == 1
    assert (entry.failures, entry.attempt) == (0, 2)
