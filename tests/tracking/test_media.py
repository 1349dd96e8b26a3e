"""What an online run sends besides numbers: pictures, tables, its console and its model; a real client and server."""

import hashlib
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fl_platform.runs import metrics
from fl_platform.runs.wandb_logs import read
from fl_platform.tracking.media import MOST_EVALUATIONS, class_table, participation
from tests.wandb_server import StoredRun, WandbServer

RUN = ["num_workers=10", "cohort_size=3", "num_rounds=3", "local_steps=1", "tracking.mode=online"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory):
    output = tmp_path_factory.mktemp("runs")
    with WandbServer() as server:
        command = [sys.executable, "-m", "fl_platform", "run", *RUN, "tracking.artifacts=best", f"output.dir={output}"]
        done = subprocess.run(command, env=server.environment(), cwd=ROOT, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        assert server.unknown == []
        [run] = server.runs.values()
        yield server, run, output


def test_tables_and_pictures_come_without_a_round(sent: tuple[WandbServer, StoredRun, Path]) -> None:
    _, run, output = sent
    assert [row["round"] for row in run.history if "round" in row] == [1, 2, 3]
    kinds = {
        name: value["_type"]
        for row in run.history
        for name, value in row.items()
        if name.startswith(metrics.MEDIA) and "round" not in row
    }
    assert kinds == {
        metrics.MEDIA_PARTITION: "image-file",
        metrics.MEDIA_CLASSES: "table-file",
        metrics.MEDIA_WORKERS: "table-file",
        metrics.MEDIA_PARTICIPATION: "histogram",
    }
    [log] = output.glob("wandb/run-*/run-*.wandb")
    record = read(log)
    assert not any(name.startswith(metrics.MEDIA) for name in [*record.history.column_names, *record.summary])


def test_the_table_of_workers_counts_rounds(sent: tuple[WandbServer, StoredRun, Path]) -> None:
    server, run, _ = sent
    [content] = [
        files.files["media/workers.table.json"] for files in server.artifacts.values() if "workers" in files.name
    ]
    table = json.loads(content)
    assert table["columns"] == ["worker", "samples", "rounds"]
    took_part = [worker for row in run.history if "round" in row for worker in row[metrics.COHORT]]
    assert [count for _, _, count in table["data"]] == np.bincount(took_part, minlength=10).tolist()


def test_the_best_model_is_an_artifact_with_its_card(sent: tuple[WandbServer, StoredRun, Path]) -> None:
    server, run, _ = sent
    artifact = server.artifacts[f"model-{run.name}"]
    assert (artifact.kind, artifact.run, artifact.is_committed) == ("model", run.name, True)
    card = json.loads(artifact.files["model.pt.json"])
    assert card["sha256"] == hashlib.sha256(artifact.files["model.pt"]).hexdigest()
    assert (card["which"], card["round"]) == ("best", run.summary[metrics.TOP_ACCURACY_ROUND])
    assert artifact.metadata["accuracy"] == run.summary[metrics.TOP_ACCURACY]
    values = torch.load(io.BytesIO(artifact.files["model.pt"]), weights_only=True)
    assert sum(value.numel() for name, value in values.items() if name.endswith("weight")) > 30_000


def test_the_console_is_sent(sent: tuple[WandbServer, StoredRun, Path]) -> None:
    _, run, _ = sent
    assert any("W&B run: http" in line for line in run.console)


def test_long_runs_have_a_table_of_bounded_length() -> None:
    rows = [{"round": number, metrics.CLASS_ACCURACY: [number / 1000, float("nan")]} for number in range(1, 1001)]
    table = class_table([{"round": 0}, *rows])
    rounds = [row[0] for row in table.data]
    assert len(rounds) == 2 * MOST_EVALUATIONS
    assert (rounds[0], rounds[-1]) == (1, 1000)


@pytest.mark.parametrize("most", [0, 1, 63, 64, 1000])
def test_every_worker_is_counted_once(most: int) -> None:
    counts, edges = participation([0, most, most // 2])
    assert counts.sum() == 3
    assert len(counts) <= 64
    assert (edges == edges.round()).all()
