"""Reproducible federated-learning experiments on PyTorch Lightning and Weights & Biases.

What an algorithm of your own needs can be imported from here: ``from fl_platform import Algorithm, LocalStep, option``.
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
        LocalStep,
        Start,
        Updates,
        state,
        zeros,
    )
    from fl_platform.config.options import group, option
    from fl_platform.errors import UserError
    from fl_platform.models.flat import Stack, Vector

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Federation",
    "LocalBatch",
    "LocalRun",
    "LocalStep",
    "Stack",
    "Start",
    "Updates",
    "UserError",
    "Vector",
    "group",
    "option",
    "state",
    "zeros",
]

_HOMES = {
    **dict.fromkeys(
        ("Algorithm", "Federation", "LocalBatch", "LocalRun", "LocalStep", "Start", "Updates", "state", "zeros"),
        "algorithms.base",
    ),
    **dict.fromkeys(("Stack", "Vector"), "models.flat"),
    "UserError": "errors",
    **dict.fromkeys(("group", "option"), "config.options"),
}
"""Public name -> the module that defines it."""

_torchvision.install()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fl_platform' has no attribute '{name}'")
    return getattr(importlib.import_module(f"fl_platform.{_HOMES[name]}"), name)
