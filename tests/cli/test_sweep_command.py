"""``sweep`` from the outside: real processes, killed, stopped and resumed; what it prints and how it exits."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fl_platform.cli import main
from fl_platform.cli.sweep import run_options
from fl_platform.runs import metrics
from fl_platform.runs.wandb_logs import read
from fl_platform.sweeps.definition import find_sweep
from fl_platform.sweeps.ledger import Entry, Ledger
from tools.sweeps import COMMAND

SMALL = {"num_workers": 10, "cohort_size": 2, "local_steps": 1}
PAUSING = """
import time
import lightning as L

class Pause(L.Callback):
    def on_train_batch_start(self, *rest):
        time.sleep(0.02)
"""
"""Rounds that a fast machine does not finish between two looks at them."""
ACCURACY = {"name": metrics.TEST_ACCURACY, "goal": "maximize"}


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, parameters: dict[str, Any], **content: Any) -> str:
    constants = {key: {"value": value} for key, value in SMALL.items()}
    whole = {"name": name, "method": "grid", "command": COMMAND, "parameters": {**constants, **parameters}, **content}
    Path(f"{name}.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    return f"{name}.yaml"


def start(*overrides: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "fl_platform", "sweep", "run", *overrides]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def entries_of(*target: str) -> list[Entry]:
    _, directory = find_sweep(Path(target[0]), list(target[1:]))
    with Ledger(directory) as ledger:
        return ledger.entries()


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Until the condition holds; a launcher that ends before it shows what it said."""
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


def rounds_on_disk(run_id: str) -> int:
    paths = list(Path("runs", run_id).glob("attempts/*/rounds.jsonl"))
    return max((path.read_text(encoding="utf-8").count("\n") for path in paths), default=0)


def stop_after(rounds: int, overrides: list[str]) -> threading.Thread:
    """Waits, beside a launcher, until a trial has some rounds on disk, and asks for a stop."""

    def wait() -> None:
        while not any(rounds_on_disk(path.name) > rounds for path in Path("runs").glob("[0-9a-f]*")):
            time.sleep(0.02)
        main(["sweep", "stop", *overrides])

    thread = threading.Thread(target=wait, daemon=True)  # a launcher that fails leaves it waiting
    thread.start()
    return thread


def test_stop_kill_and_resume_end_with_the_result_of_an_undisturbed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped by `sweep stop`, then the launcher killed, then the trial it left: the third launch completes the run."""
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("pausing.py").write_text(PAUSING, encoding="utf-8")
    rounds = {"num_rounds": 80, "callbacks": ["pausing.Pause"]}
    file = write("long", {**{key: {"value": value} for key, value in rounds.items()}, "checkpoint.every": {"value": 5}})
    overrides = [file, "tracking.mode=disabled"]
    stopper = stop_after(10, overrides)
    assert main(["sweep", "run", *overrides]) == 130
    stopper.join()
    (entry,) = entries_of(*overrides)
    run_id = entry.run_id or ""
    stopped_at = rounds_on_disk(run_id)
    assert entry.state == "interrupted"
    assert entry.summary[metrics.ROUNDS] == stopped_at < 60

    launcher = start(*overrides)
    wait_for(lambda: rounds_on_disk(run_id) > stopped_at + 8 and entries_of(*overrides)[0].state == "started", launcher)
    (entry,) = entries_of(*overrides)
    assert entry.pid != launcher.pid
    launcher.send_signal(signal.SIGKILL)
    launcher.communicate()
    os.kill(entry.pid, signal.SIGKILL)

    assert main(["sweep", "run", *overrides]) == 0
    assert "attempt 3" in capsys.readouterr().err
    (entry,) = entries_of(*overrides)
    assert entry.state == "finished"
    assert len(list(Path("runs", run_id, "attempts").iterdir())) == 1  # every attempt went on with the first one's
    keys_given = [f"{key}={value}" for key, value in {**SMALL, "num_rounds": 80}.items()]
    assert main(["run", *keys_given, "tracking.mode=disabled", "output.dir=undisturbed"]) == 0
    result = json.loads(Path("undisturbed", run_id, "result.json").read_text(encoding="utf-8"))
    assert entry.summary[metrics.FINGERPRINT] == result[metrics.FINGERPRINT]

    (directory,) = Path("runs/sweeps").iterdir()
    for several in ("runs", "runs/sweeps"):
        assert main(["sweep", "status", several]) == 0
        assert capsys.readouterr().out.splitlines()[-1].startswith(f"{directory}: 1/1 done (1 finished)")
    assert main(["sweep", "stop", "runs"]) == 2
    assert f"it holds sweeps, give one of {directory}" in capsys.readouterr().err


def test_hyperband_two_launchers_and_what_reaches_wandb(capsys: pytest.CaptureFixture[str]) -> None:
    """A hopeless rate is stopped early; two launchers share the trials; logs carry sweep id, group and tags."""
    stop = {"type": "hyperband", "max_iter": 90, "s": 2, "eta": 3}
    rates = {"local_lr": {"values": [0.1, 1e-9]}, "num_rounds": {"value": 400}}
    file = write("rates", rates, metric=ACCURACY, early_terminate=stop)
    other = start(file, "--jobs", "1")
    assert main(["sweep", "run", file, "--jobs", "1"]) == 0
    said = [capsys.readouterr().err, other.communicate()[0]]
    assert other.returncode == 0, said
    entries = entries_of(file)
    assert entries[0].state == "finished"
    assert "stopped" in [entry.state for entry in entries]
    for entry in entries:
        assert entry.attempt == 1
        assert sum(f"trial {entry.number} starts" in text for text in said) == 1
        assert (entry.summary[metrics.ROUNDS] < 400) == (entry.state == "stopped")
    logs = [read(path) for path in Path("runs/wandb").glob("offline-run-*/*.wandb")]
    assert sorted(log.run_id for log in logs) == sorted(entry.run_id or "" for entry in entries)
    sweep, directory = find_sweep(Path(file))
    for log in logs:
        assert (log.sweep, log.project) == (sweep.identifier, "fl_platform")
        assert "sweep:rates" in log.tags
        assert re.fullmatch(r"\w+ digits w0\.1 S\d+ · [0-9a-f]{4}", log.group)
        assert log.config["local_lr"] in (0.1, 1e-9)
    capsys.readouterr()
    assert main(["sweep", "status", str(directory)]) == 0
    assert "2/2 done" in capsys.readouterr().out
    assert main(["sweep", "best", file, "--write", "chosen.yaml"]) == 0
    chosen = yaml.safe_load(Path("chosen.yaml").read_text(encoding="utf-8"))
    entry = chosen["chosen"]["none"]["fedavg"]
    assert entry["keys"] == {"local_lr": 0.1}
    assert entry["stopped"] == sum(entry.state == "stopped" for entry in entries)


def test_continue_starts_or_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    overrides = [
        "run",
        *(f"{key}={value}" for key, value in SMALL.items()),
        "num_rounds=4",
        "checkpoint.every=1",
        "tracking.mode=disabled",
    ]
    assert main([*overrides, "--continue"]) == 0
    (run_path,) = [path.parent for path in Path("runs").glob("*/result.json")]
    whole = json.loads((run_path / "result.json").read_text(encoding="utf-8"))
    (run_path / "result.json").unlink()
    newest = max((run_path / "attempts/0001/checkpoints").glob("*.ckpt"))
    newest.unlink()
    assert main([*overrides, "--continue"]) == 0
    again = json.loads((run_path / "result.json").read_text(encoding="utf-8"))
    assert again[metrics.FINGERPRINT] == whole[metrics.FINGERPRINT]
    assert [path.name for path in (run_path / "attempts").iterdir()] == ["0001"]
    assert main([*overrides, "--continue"]) == 0  # finished: nothing to go on with, so a new attempt
    assert [path.name for path in (run_path / "attempts").iterdir()] == ["0002"]


def test_run_reads_keys_as_agents_write_them() -> None:
    overrides = [f"--{key}={value}" for key, value in {**SMALL, "num_rounds": 1, "tracking.mode": "disabled"}.items()]
    assert main(["run", *overrides, "--json=out.json"]) == 0
    assert json.loads(Path("out.json").read_text(encoding="utf-8"))[metrics.ROUNDS] == 1


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["run", "none.yaml"], "none.yaml: no such file"),
        (["run", "small.yaml", "sede=1"], "unknown key 'sede'; did you mean 'seed'?"),
        (["status", "small.yaml"], "small.yaml: never launched with these arguments"),
        (["status", "."], ". is not a sweep directory"),
        (["best", ".", "seed=1"], "seed=1 cannot be given with the directory"),
        (["run", "random.yaml"], "method=random never ends by itself"),
        (["run", "program.yaml"], "does not call `fl_platform run`"),
        (["run", "silent.yaml"], 'or left out, which means ["${env}", "${interpreter}", "-m", "fl_platform", "run"'),
    ],
)
def test_bad_input_is_one_sentence(overrides: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("small", {"seed": {"values": [0]}})
    write("random", {"local_lr": {"min": 0.1, "max": 0.2}}, method="random")
    write("program", {"seed": {"values": [0]}}, command=["python", "train.py", "${args}"])
    write("silent", {"seed": {"values": [0]}}, command=None)
    assert main(["sweep", *overrides]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_former_name_of_jobs_is_taken_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    parsed = []
    for option in ("--jobs", "--workers"):
        parser = argparse.ArgumentParser()
        run_options(parser)
        parsed.append(parser.parse_args(["any.yaml", option, "3"]).jobs)
    assert parsed == [3, 3]
    assert capsys.readouterr().err == "hint: --workers is called --jobs now\n"
