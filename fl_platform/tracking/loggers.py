"""Loggers beside Weights & Biases: CSV, TensorBoard and MLflow, each a logger of Lightning."""

import importlib.util
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from fl_platform.config.resolve import RunSpec
from fl_platform.config.schema import flatten, to_dict
from fl_platform.errors import UserError
from fl_platform.runs import metrics

_PACKAGES = {"csv": (), "tensorboard": (("tensorboard", "tensorboardX"),), "mlflow": (("mlflow",), ("sqlalchemy",))}
"""Logger -> groups of modules, of each of which one must be there; MLflow's smaller package lacks its database."""


def log_row(loggers: Iterable[Any], row: dict[str, Any]) -> None:
    """Give a round to every logger: whole to W&B, whose x axis is the round; its numbers, at their round, to others."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_metrics(row)
        else:
            numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
            logger.log_metrics(numbers, step=row[metrics.ROUND])
            logger.save()


def check_packages(names: Iterable[str]) -> None:
    """Raise UserError unless the packages of these loggers are installed."""
    for name in names:
        if not all(any(map(importlib.util.find_spec, group)) for group in _PACKAGES[name]):
            raise UserError(
                f"tracking.also=[{name}] needs the package {name}, which is not installed; "
                f"install it (pip install {name}) or leave it out"
            )


def open_others(spec: RunSpec, attempt: Path) -> list[Logger]:
    """Return the loggers that ``tracking.also`` names.

    CSV and TensorBoard write below the attempt, anew where a run goes on: its earlier rounds are logged once more.
    MLflow has a run for each start, in $MLFLOW_TRACKING_URI or the database `<output.dir>/mlflow.db`.
    """
    return [_open(name, spec, attempt) for name in spec.config.tracking.also]


def _open(name: str, spec: RunSpec, attempt: Path) -> Logger:
    if name == "mlflow":
        place = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{(spec.output / 'mlflow.db').absolute()}")
        logger: Logger = MLFlowLogger(
            spec.config.tracking.project, run_name=spec.name, tracking_uri=place, tags={"run_id": spec.run_id}
        )
    else:
        directory = attempt / name
        shutil.rmtree(directory, ignore_errors=True)
        kind = CSVLogger if name == "csv" else TensorBoardLogger
        logger = kind(attempt, name=name, version="")
    logger.log_hyperparams(dict(flatten(to_dict(spec.config))))
    return logger


class EarlierRoundsElsewhere(L.Callback):
    """Logs the rounds before a resume to loggers that begin anew."""

    def __init__(self, loggers: Iterable[Logger]) -> None:
        self._loggers = loggers

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        for row in pl_module.history:  # type: ignore[union-attr]
            log_row(self._loggers, row)
