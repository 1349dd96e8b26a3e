"""The same YAML with the real W&B client against a loopback server: sweep, agent, sync."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_sweeps import entries_of, quick_sweep, write_sweep
from wandb_server import WandbServer

from fl_platform.cli import main
from fl_platform.runs import metrics
from tools.sweeps import COMMAND

SMALL = {"num_workers": 10, "cohort_size": 2, "local_steps": 1, "num_rounds": 2}


class AgentServer(WandbServer):
    """Understands what wandb 0.31's agent says of a run under way: ``true``."""

    def on_Heartbeat(self, variables: dict[str, Any]) -> dict[str, Any]:
        states = {run: "running" for run, state in json.loads(variables["runState"]).items() if state is True}
        return super().on_Heartbeat({**variables, "runState": json.dumps(states)})


def wandb(server: WandbServer, *args: str) -> str:
    """The real command line, talking to the loopback server."""
    command = [str(Path(sys.executable).with_name("wandb")), *args]
    variables = server.environment()
    variables["WANDB_AGENT_REPORT_INTERVAL"] = "1"  # seconds; 5 otherwise
    variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"  # an agent calls a plain `python`
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_sweep_and_agent_run_the_yaml_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    constants = {key: {"value": value} for key, value in SMALL.items()}
    point = {"values": ["algorithm.name=fedprox algorithm.mu=0.1 local_lr=0.05"]}
    metric = {"name": metrics.TOP_ACCURACY, "goal": "maximize"}
    file = write_sweep(
        tmp_path / "online.yaml", {**constants, "point": point}, command=COMMAND, metric=metric, name="online"
    )
    with AgentServer() as server:
        wandb(server, "sweep", "--project", "federated", str(file))
        (sweep,) = server.sweeps.values()
        wandb(server, "agent", f"{sweep.project}/{sweep.name}")
        assert server.unknown == []
        (run,) = server.runs.values()
    assert run.sweep == sweep.name
    assert run.exit_code == 0
    assert run.config["algorithm"] == {"name": "fedprox", "mu": 0.1}
    assert run.config["local_lr"] == 0.05
    assert [row[metrics.ROUND] for row in run.history if metrics.ROUND in row] == [1, 2]
    (result,) = (json.loads(path.read_text(encoding="utf-8")) for path in Path("runs").glob("*/result.json"))
    assert run.summary[metrics.TOP_ACCURACY] == result[metrics.TOP_ACCURACY]
    assert run.config["run"]["id"] == result["run"]


# wandb leaves the file of a sweep's parameters open to the collector
@pytest.mark.filterwarnings("ignore:Exception ignored in.*FileIO:pytest.PytestUnraisableExceptionWarning")
def test_sync_keeps_what_groups_the_runs_of_an_offline_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # the client writes its own log below the working directory
    algorithms: dict[str, Any] = {"algorithm.name": {"values": ["fedavg", "scaffold"]}}
    sweep = quick_sweep(tmp_path, algorithms, "tracking.mode=offline", name="offline")
    assert main(["sweep", "run", str(sweep.source), *sweep.overrides, "--in-process", "--jobs", "2"]) == 0
    said = capsys.readouterr().err.splitlines()
    for number in (0, 1):  # whichever of the two launchers had them
        assert len([line for line in said if line.startswith(f"trial {number} starts as run")]) == 1
        assert len([line for line in said if line.startswith(f"trial {number} finished")]) == 1
    with WandbServer() as server:
        wandb(server, "sync", *map(str, (tmp_path / "runs/wandb").glob("offline-run-*")))
        assert server.unknown == []
        runs = dict(server.runs)
    entries = entries_of(sweep)
    assert sorted(runs) == sorted(entry.run_id or "" for entry in entries)
    for entry in entries:
        run = runs[entry.run_id or ""]
        assert (run.sweep, run.project) == (sweep.identifier, "fl_platform")
        assert run.group.endswith(run.config["run"]["group"][:4])
        assert set(run.tags) == {entry.params["algorithm.name"], "digits", "sweep:offline"}
        assert run.summary[metrics.FINGERPRINT] == entry.summary[metrics.FINGERPRINT]
    assert len({run.group for run in runs.values()}) == 2
