"""The real client against the loopback server: online runs, sync, and reading them back through the reports."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.wandb_server import StoredRun, WandbServer

ONLINE = """
import wandb
for seed in (0, 1):
    config = {"algorithm": {"name": "gradma"}, "seed": seed, "data": {"name": "mnist"}, "cohort_size": 10}
    with wandb.init(project="online", id=f"run{seed}", group="g", tags=["t"], config=config) as run:
        run.define_metric("*", step_metric="round")
        for round in range(1, 1101):
            run.log({"round": round, "test/accuracy": round / 2000 + seed / 10, "cohort/workers": [1, 2]})
        run.summary["status"] = "finished"
"""

OFFLINE = """
import wandb
config = {"algorithm": {"name": "fedavg"}, "seed": 5}
with wandb.init(project="synced", mode="offline", config=config) as run:
    for round in range(1, 200):
        run.log({"round": round, "test/accuracy": round / 200, "train/loss": float("nan")})
    run.summary["status"] = "finished"
"""


def run(server: WandbServer, *command: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], env=server.environment(), cwd=directory, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    directory = tmp_path_factory.mktemp("client")
    with WandbServer() as server:
        run(server, "-c", ONLINE, directory=directory)
        yield server
        assert server.unknown == []


def pivot(server: WandbServer, source: str) -> pd.DataFrame:
    root = Path(__file__).parents[2]
    arguments = ["--rows", "algorithm.name,seed", "--value", "top_accuracy", "--format", "csv"]
    return pd.read_csv(
        io.StringIO(run(server, "-m", "fl_platform", "report", "--source", source, *arguments, directory=root))
    )


def test_server_stores_what_the_client_sends(server: WandbServer) -> None:
    stored = server.runs["run1"]
    assert stored.config["algorithm"] == {"name": "gradma"}
    assert (stored.group, stored.tags, stored.exit_code, stored.state) == ("g", ["t"], 0, "finished")
    assert [row["round"] for row in stored.history] == list(range(1, 1101))
    assert stored.summary["status"] == "finished"


def test_full_history_is_read_through_the_api(server: WandbServer) -> None:
    table = pivot(server, "wandb:tester/online")
    assert table["mean"].tolist() == pytest.approx([55.0, 65.0])  # the maximum is at round 1100: sampling would miss it
    assert table["n"].tolist() == [1, 1]


def test_synced_offline_log_reads_the_same(server: WandbServer, tmp_path: Path) -> None:
    run(server, "-c", OFFLINE, directory=tmp_path)
    run(server, "-m", "wandb", "sync", *map(str, tmp_path.glob("wandb/offline-run-*")), directory=tmp_path)
    online, offline = pivot(server, "wandb:tester/synced"), pivot(server, str(tmp_path))
    pd.testing.assert_frame_equal(online, offline)
    assert offline["mean"].tolist() == [99.5]


def test_sweep_trials_are_handed_out_once_each(server: WandbServer, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("program: x.py\nmethod: grid\nparameters: {a: {values: [1, 2]}, b: {value: c}}\n")
    run(server, "-m", "wandb", "sweep", "--project", "swept", "s.yaml", directory=tmp_path)
    (name,) = server.sweeps
    agent = server.answer("mutation CreateAgent(", {"sweep": name})["createAgent"]["agent"]["id"]
    beats = []
    for state in ({}, {"r": "running"}, {"r": "finished"}, {}, {}):
        reply = server.answer("mutation Heartbeat(", {"id": agent, "runState": json.dumps(state)})
        beats.append(json.loads(reply["agentHeartbeat"]["commands"]))
    assert [command["args"]["a"]["value"] for beat in beats for command in beat if command["type"] == "run"] == [1, 2]
    assert [[command["type"] for command in beat] for beat in beats] == [["run"], [], ["run"], ["exit"], ["exit"]]


def test_a_key_that_the_server_refuses_is_one_sentence(server: WandbServer, tmp_path: Path) -> None:
    arguments = ["-m", "fl_platform", "run", "tracking.mode=online", "num_rounds=1", f"output.dir={tmp_path / 'runs'}"]
    environment = {**server.environment(), "WANDB_API_KEY": "1" * 40}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2, done.stderr
    assert "W&B refuses tracking.mode=online" in done.stderr
    assert "tracking.mode=offline needs no server" in done.stderr
    assert "Traceback" not in done.stderr
    assert "1" * 40 not in done.stdout + done.stderr


READ = """
import json, sys
from pathlib import Path
from fl_platform.runs.wandb_server import read_project
records = read_project("tester/many", Path(sys.argv[1]))
accuracies = ((record, record.history["test/accuracy"].to_pylist()) for record in records)
print(json.dumps({record.run_id: [record.status, found[-1]] for record, found in accuracies}))
"""


def test_rounds_of_ended_runs_are_asked_for_once(tmp_path: Path) -> None:
    with WandbServer() as server:
        for number in range(12):
            history = [{"_step": step, "round": step + 1, "test/accuracy": step / 1000} for step in range(number + 3)]
            summary = {"status": "finished", "_step": number + 2}
            exit_code = None if number == 0 else 0
            run_id = f"run{number:02d}"
            server.runs[run_id] = StoredRun(run_id, "many", summary=summary, history=history, exit_code=exit_code)

        def read() -> tuple[dict[str, list[object]], int]:
            asked = server.operations.count("HistoryPage")
            found = json.loads(run(server, "-c", READ, str(tmp_path / "cache"), directory=Path(__file__).parents[2]))
            return found, server.operations.count("HistoryPage") - asked

        first, asked = read()
        assert list(first) == [f"run{number:02d}" for number in range(12)]  # in the server's order
        assert first["run00"] == ["running", 0.002]
        assert first["run11"] == ["finished", 0.013]
        assert asked == 12
        changed = server.runs["run05"]
        changed.history.append({"_step": 8, "round": 9, "test/accuracy": 0.5})
        changed.summary["_step"] = 8
        second, asked = read()
        assert second == first | {"run05": ["finished", 0.5]}
        assert asked == 2  # the changed one, and the one that is still running
