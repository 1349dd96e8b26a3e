"""Run directories and sweeps for tests of the dashboard; nothing is imported from the code that reads them."""

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fl_platform.runs import metrics
from tests.synthetic_logs import curve

HOSTILE = """<img src=x onerror="window.hit=1">'"&</script><script>window.hit=1</script>"""


def rows(algorithm: str = "fedavg", seed: int = 0, rounds: int = 20, level: float = 0.8) -> list[dict[str, Any]]:
    """What a run writes each round."""
    accuracies = curve(level, 0.1, seed, rounds)
    best = np.maximum.accumulate(accuracies)
    made = []
    for place, accuracy in enumerate(accuracies.tolist()):
        row = {metrics.ROUND: place + 1, metrics.COHORT: [1, 2, 3], metrics.TRAIN_LOSS: 2.0 / (place + 1)}
        row |= {metrics.TEST_ACCURACY: accuracy, metrics.FORGETTING: float(best[place]) - accuracy}
        row |= {
            metrics.TOTAL_SECONDS: 0.5 * (place + 1),
            metrics.TOTAL_BYTES: 1000 * (place + 1),
            metrics.ROUND_SECONDS: 0.5,
        }
        if algorithm.startswith("gradma"):
            row |= {metrics.QP_SERVER_ACTIVE: float(place % 4), metrics.QP_SERVER_RATIO: 0.9}
        made.append(row)
    return made


def write_rows(path: Path, made: list[dict[str, Any]], mode: str = "w") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, mode, encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in made)


def write_run(
    output: Path,
    run_id: str,
    algorithm: str = "fedavg",
    seed: int = 0,
    status: str | None = "finished",
    made: list[dict[str, Any]] | None = None,
    fields: dict[str, Any] | None = None,
    **config: Any,
) -> Path:
    """A run directory of an algorithm with these fields; without a status no result yet. Returns its rounds.jsonl."""
    made = rows(algorithm, seed) if made is None else made
    whole = {
        "algorithm": {"name": algorithm, **(fields or {})},
        "seed": seed,
        "data": {"name": "digits", "partition": "dirichlet", "dirichlet_omega": 0.1},
        "cohort_size": 10,
        "num_workers": 20,
        "num_rounds": 20,
        "evaluation": {"targets": [0.5]},
        "tracking": {"tags": []},
        "run": {"data_label": "Digits"},
        **config,
    }
    directory = output / run_id
    path = directory / "attempts" / "0001" / "rounds.jsonl"
    write_rows(path, made)
    (directory / "config.yaml").write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    if status:
        result = {"run": run_id, metrics.STATUS: status, metrics.ROUNDS: len(made)}
        (directory / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return path


def make_old(path: Path, seconds: float = 10_000) -> None:
    """As if the files below were written long ago."""
    for file in [path, *path.rglob("*")]:
        os.utime(file, (time.time() - seconds,) * 2)
