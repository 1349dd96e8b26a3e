"""Offline runs that were stopped and went on, synced by the real client: the server holds every round once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from wandb.proto.wandb_internal_pb2 import Record

import fl_platform as fl
from fl_platform.config.registry import ALGORITHMS
from fl_platform.runs import wandb_logs
from tests.wandb_server import WandbServer

KEYS = {"num_workers": 10, "cohort_size": 3, "local_steps": 1, "num_rounds": 6, "trainer.enable_progress_bar": False}


@pytest.fixture
def stops():
    """An algorithm that asks to be stopped, by SIGTERM, in the third round of the first start."""
    done = []

    class Stops(fl.Algorithm, name="stops"):
        def begin_round(self, workers, round):
            if round == 3 and not done:
                done.append(round)
                os.kill(os.getpid(), signal.SIGTERM)

    yield
    ALGORITHMS._entries.pop("stops")


def sync(server: WandbServer, directory: Path) -> None:
    command = [sys.executable, "-m", "wandb", "sync", *map(str, sorted(directory.glob("wandb/offline-run-*")))]
    done = subprocess.run(
        command, cwd=directory, env=server.environment(), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def rounds(server: WandbServer, run_id: str) -> list[int]:
    return [row["round"] for row in server.runs[run_id].history if "round" in row]


def records(result: fl.Result) -> list[Record]:
    [log] = result.wandb_directory.glob("*.wandb")
    return [Record.FromString(payload) for payload in wandb_logs._payloads(log.read_bytes(), [])]


@pytest.mark.usefixtures("stops")
@pytest.mark.parametrize("is_synced_between", [False, True])
def test_a_run_that_was_stopped_and_went_on_has_every_round_once(is_synced_between, tmp_path, capsys):
    keys = {**KEYS, "output.dir": tmp_path, "algorithm.name": "stops"}
    with WandbServer() as server:
        first = fl.run(keys)
        assert (first.status, len(first.rounds)) == ("interrupted", 3)
        assert any(record.HasField("preempting") for record in records(first)), "an online sweep would start it again"
        if is_synced_between:
            sync(server, tmp_path)
            assert rounds(server, first.run_id) == [1, 2, 3]
            for log in tmp_path.glob("wandb/offline-run-*"):
                assert list(log.glob("*.wandb.synced"))
        whole = fl.run(keys, reuse=True)
        assert whole.status == "finished"
        sync(server, tmp_path)
        found = rounds(server, whole.run_id)
    assert found == [1, 2, 3, 4, 5, 6]
    assert fl.load_runs(tmp_path / "wandb").rounds["round"].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_diverged_run_sends_an_alert_where_that_was_asked_for(tmp_path):
    keys = {**KEYS, "output.dir": tmp_path, "local_lr": 1e30, "model.norm": "none"}
    for alert in (False, True):
        result = fl.run(keys, tracking={"alert": alert})
        texts = [record.alert.text for record in records(result) if record.HasField("alert")]
        assert texts == (["in round 1"] if alert else [])
