"""Local training only: every worker trains a model of its own on its own data. A reference without federation.

All start from x_0. A worker takes its local steps in the rounds for which it is sampled, from where it stopped the last
time, and nothing is sent. Test metrics are means over all N workers' models, each scored on the whole test set (workers
that were never sampled have x_0), which makes an evaluation cost as much as one model for every worker seen;
``evaluation.workers=true`` scores each model on its worker's own test samples. The server's model stays x_0.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fl_platform.algorithms.base import Algorithm, LocalRun, LocalStart, Start, Updates
from fl_platform.algorithms.reference_rules import ReferenceRules
from fl_platform.models.flat import Stack, Vector


@dataclass(eq=False)
class LocalOnly(ReferenceRules, Algorithm, name="local_only", label="Local only"):
    """Every worker trains alone; metrics are means over the workers' models."""

    group: ClassVar[str] = "reference"
    kind: ClassVar[str] = "baseline"
    downloads: ClassVar[int] = 0
    uploads: ClassVar[int] = 0
    is_scored_by_workers: ClassVar[bool] = True

    @property
    def keeps(self) -> dict[str, Start]:
        return {"own_params": Start.INITIAL_PARAMS, "own_buffers": Start.INITIAL_BUFFERS}

    def start_local(self, start: LocalStart) -> tuple[Stack, Stack]:
        return start.state["own_params"], start.state["own_buffers"]

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        return {"own_params": run.params, "own_buffers": run.buffers}

    def server_direction(self, updates: Updates) -> Vector:
        return torch.zeros_like(updates.global_params)
