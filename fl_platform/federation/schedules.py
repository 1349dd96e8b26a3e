"""What depends on the round: learning rates, and whether the model is evaluated."""

import math
from collections.abc import Mapping
from typing import Any

from fl_platform.config.schema import Config
from fl_platform.runs import metrics


def local_rate(config: Config, round: int) -> float:
    """Return ``local_lr`` in a round, counted from 1."""
    schedule = config.local_lr_schedule, config.local_lr_decay, config.local_lr_every, config.local_lr_floor
    return config.local_lr * factor(*schedule, round, config.num_rounds or 1)


def server_rate(config: Config, round: int) -> float:
    """Return ``server_lr`` in a round, counted from 1."""
    schedule = config.server_lr_schedule, config.server_lr_decay, config.server_lr_every, config.server_lr_floor
    return config.server_lr * factor(*schedule, round, config.num_rounds or 1)


def factor(name: str, decay: float, every: int, floor: float, round: int, num_rounds: int) -> float:
    """Return what a rate is multiplied by in round t = 1, 2, ...; it is 1 in the first.

    exponential: decay^(t-1); step: decay^floor((t-1) / every); cosine, as torch's CosineAnnealingLR over T rounds:
    floor + (1 - floor) (1 + cos(pi (t-1) / T)) / 2, which would come to its floor in round T + 1.
    """
    done = round - 1
    if name == "exponential":
        return decay**done
    if name == "step":
        return float(decay ** (done // every))
    if name == "cosine":
        return floor + (1 - floor) * (1 + math.cos(math.pi * done / num_rounds)) / 2
    return 1.0


def is_evaluated(config: Config, round: int) -> bool:
    """The first round, every ``evaluation.every`` from it, and the last; a run that ends early has one more."""
    return _is_due(config, round, config.evaluation.every or 1)


def are_workers_evaluated(config: Config, round: int) -> bool:
    """The same for ``evaluation.workers_every``."""
    return _is_due(config, round, config.evaluation.workers_every or config.evaluation.every or 1)


def due_metrics(config: Config, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a round without the metrics of evaluations that are not due in it."""
    early = [] if is_evaluated(config, row[metrics.ROUND]) else [metrics.EVALUATED]
    early += [] if are_workers_evaluated(config, row[metrics.ROUND]) else [metrics.WORKERS]
    return {name: value for name, value in row.items() if not name.startswith(tuple(early))}


def _is_due(config: Config, round: int, every: int) -> bool:
    return (round - 1) % every == 0 or round == config.num_rounds
