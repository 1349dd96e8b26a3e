"""What W&B can draw besides lines over rounds: the partition as a picture, tables of classes and of workers.

They are logged without a round, so that readers of a run's rounds pass them over.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import wandb
from lightning.pytorch.loggers import WandbLogger

from fl_platform.data.bubbles import draw_bubbles
from fl_platform.runs import metrics

MOST_WORKERS = 200
"""Workers in the picture and rows of the table of workers: more cannot be told apart."""
MOST_EVALUATIONS = 100
"""Evaluations in the table of classes, evenly spaced; the last is always among them."""


class Media(L.Callback):
    """Logs the partition when training starts, and tables of classes and workers when it ends."""

    def __init__(self, logger: WandbLogger) -> None:
        self._run = logger.experiment

    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        if self._run.resumed:
            return
        counts = pl_module.class_counts()
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "partition.png")
            draw_bubbles(counts[:MOST_WORKERS], path, f"training samples of {len(counts)} workers")
            self._run.log({metrics.MEDIA_PARTITION: wandb.Image(str(path))})

    def on_fit_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        rounds = Counter(worker for row in pl_module.history for worker in row[metrics.COHORT])
        per_worker = [rounds[worker] for worker in range(len(pl_module.sizes))]
        self._run.log(
            {
                metrics.MEDIA_CLASSES: class_table(pl_module.history),
                metrics.MEDIA_WORKERS: worker_table(pl_module.sizes, per_worker),
                metrics.MEDIA_PARTICIPATION: wandb.Histogram(np_histogram=participation(per_worker)),
            }
        )


def participation(rounds: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Histogram of the rounds in which workers took part: whole numbers in up to 64 bins."""
    width = -(-(max(rounds) + 1) // 64)
    return np.histogram(rounds, bins=np.arange(0, max(rounds) + 1 + width, width))


def class_table(rows: Iterable[dict[str, Any]]) -> wandb.Table:
    """The accuracy of every class at evaluations: round, class, accuracy."""
    evaluated = [row for row in rows if metrics.CLASS_ACCURACY in row]
    chosen = np.unique(np.linspace(0, len(evaluated) - 1, min(len(evaluated), MOST_EVALUATIONS)).round().astype(int))
    data: list[Iterable[Any]] = [
        [evaluated[index][metrics.ROUND], str(label), accuracy]
        for index in chosen
        for label, accuracy in enumerate(evaluated[index][metrics.CLASS_ACCURACY])
    ]
    return wandb.Table(columns=["round", "class", "accuracy"], data=data)


def worker_table(sizes: np.ndarray, rounds: list[int]) -> wandb.Table:
    """The first workers with their samples and the rounds in which they took part."""
    rows = zip(sizes[:MOST_WORKERS].tolist(), rounds[:MOST_WORKERS], strict=True)
    data: list[Iterable[Any]] = [[str(worker), size, count] for worker, (size, count) in enumerate(rows)]
    return wandb.Table(columns=["worker", "samples", "rounds"], data=data)
