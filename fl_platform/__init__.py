"""Reproducible federated-learning experiments on PyTorch Lightning and Weights & Biases.

``run``, ``sweep``, ``load_runs``, ``table`` and ``curves`` are the platform from Python (docs/python.md). What an
algorithm or data set of your own needs can be imported from here, too: ``from fl_platform import Algorithm, option``.
Each name is imported when it is first used, so that ``import fl_platform`` alone stays fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fl_platform import _torchvision

if TYPE_CHECKING:
    from fl_platform.algorithms.base import (
        Algorithm,
        Federation,
        LocalBatch,
        LocalRun,
        LocalStart,
        LocalStep,
        LocalSurvey,
        Start,
        Updates,
        state,
        zeros,
    )
    from fl_platform.config.options import group, option
    from fl_platform.data.partition import Partitioner
    from fl_platform.data.samples import Samples
    from fl_platform.data.sets.base import Dataset
    from fl_platform.errors import UserCodeError, UserError
    from fl_platform.federation.api import run
    from fl_platform.federation.module import FederatedModule
    from fl_platform.federation.result import Result
    from fl_platform.federation.trained import load_model
    from fl_platform.models.flat import Stack, Vector
    from fl_platform.reporting.api import curves, table
    from fl_platform.runs.frames import Runs
    from fl_platform.runs.frames import load as load_runs
    from fl_platform.sweeps.api import SweepResult, sweep

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Dataset",
    "FederatedModule",
    "Federation",
    "LocalBatch",
    "LocalRun",
    "LocalStart",
    "LocalStep",
    "LocalSurvey",
    "Partitioner",
    "Result",
    "Runs",
    "Samples",
    "Stack",
    "Start",
    "SweepResult",
    "Updates",
    "UserCodeError",
    "UserError",
    "Vector",
    "curves",
    "group",
    "load_model",
    "load_runs",
    "option",
    "run",
    "state",
    "sweep",
    "table",
    "zeros",
]

_HOMES = {
    **dict.fromkeys(
        (
            "Algorithm",
            "Federation",
            "LocalBatch",
            "LocalRun",
            "LocalStart",
            "LocalStep",
            "LocalSurvey",
            "Start",
            "Updates",
            "state",
            "zeros",
        ),
        "algorithms.base",
    ),
    **dict.fromkeys(("Stack", "Vector"), "models.flat"),
    "Dataset": "data.sets.base",
    "Partitioner": "data.partition",
    "Samples": "data.samples",
    **dict.fromkeys(("UserCodeError", "UserError"), "errors"),
    **dict.fromkeys(("group", "option"), "config.options"),
    "run": "federation.api",
    "Result": "federation.result",
    "FederatedModule": "federation.module",
    "load_model": "federation.trained",
    **dict.fromkeys(("Runs", "load_runs"), "runs.frames"),
    **dict.fromkeys(("SweepResult", "sweep"), "sweeps.api"),
    **dict.fromkeys(("curves", "table"), "reporting.api"),
}
"""Public name -> the module that defines it."""
_OWN_NAMES = {"load_runs": "load"}
"""Public name -> what its module calls it."""

_torchvision.install()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fl_platform' has no attribute '{name}'")
    return getattr(importlib.import_module(f"fl_platform.{_HOMES[name]}"), _OWN_NAMES.get(name, name))


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
