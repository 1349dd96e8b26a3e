"""Accuracy, forgetting, what it took to reach a target: arrays in, numbers out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fl_platform.config.targets import EPSILON, FURTHER_METRICS, parse_target
from fl_platform.engines.evaluation import Scores
from fl_platform.runs import metrics

_OTHERS = ("loss", *FURTHER_METRICS)


def class_accuracy(correct: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Per-class accuracy from per-class counts; a class without samples is NaN."""
    with np.errstate(invalid="ignore"):
        return correct / np.where(total > 0, total, np.nan)


def forgetting(best: np.ndarray, current: np.ndarray) -> float:
    """Mean over classes of the best accuracy so far minus the current one."""
    return float(np.nanmean(best - current))


@dataclass
class Scoreboard:
    """The measures of one run so far: best accuracies, targets reached, communication and time spent."""

    targets: list[float | str]
    top_accuracy: float = float("nan")
    top_accuracy_round: int = 0
    final_accuracy: float = float("nan")
    best_class_accuracy: list[float] = field(default_factory=list)
    reached: dict[str, float] = field(default_factory=dict)
    total_bytes: int = 0
    total_seconds: float = 0.0
    diverged_round: int | None = None
    final_figures: dict[str, float] = field(default_factory=dict)  # of evaluation.metrics

    @classmethod
    def of_rows(cls, targets: list[float | str], rows: Iterable[Mapping[str, Any]]) -> "Scoreboard":
        """The scoreboard of a run that logged these rows and has not diverged."""
        board = cls(targets)
        for row in rows:
            board.total_bytes, board.total_seconds = row[metrics.TOTAL_BYTES], row[metrics.TOTAL_SECONDS]
            board.noted(row)
            if metrics.TEST_ACCURACY in row:
                per_class = np.asarray(row[metrics.CLASS_ACCURACY], dtype=np.float64)
                others = {name: row[key] for name in _OTHERS if (key := metrics.tested(name)) in row}
                board.evaluated(row[metrics.ROUND], row[metrics.TEST_ACCURACY], per_class, others)
        return board

    def spent(self, num_bytes: int, seconds: float) -> dict[str, Any]:
        """Add what a round sent and took; returns what is logged for it."""
        self.total_bytes += num_bytes
        self.total_seconds += seconds
        return {
            metrics.ROUND_SECONDS: seconds,
            metrics.TOTAL_SECONDS: self.total_seconds,
            metrics.TOTAL_BYTES: self.total_bytes,
        }

    def noted(self, row: Mapping[str, Any]) -> None:
        """Take in what a round logged, evaluated or not: the privacy spent so far may be a target."""
        if metrics.EPSILON in row:
            self._reach(row[metrics.ROUND], {EPSILON: row[metrics.EPSILON]})

    def _reach(self, round: int, found: Mapping[str, float]) -> None:
        """Note what it took to reach the targets that these metrics reach for the first time."""
        for target in self.targets:
            goal = parse_target(target)
            if (
                goal.is_reached(found.get(goal.metric, float("nan")))
                and metrics.to_target(target, "rounds") not in self.reached
            ):
                for unit, spent in (("rounds", round), ("bytes", self.total_bytes), ("seconds", self.total_seconds)):
                    self.reached[metrics.to_target(target, unit)] = spent

    def evaluated(
        self, round: int, accuracy: float, per_class: np.ndarray, others: Mapping[str, float] | None = None
    ) -> dict[str, Any]:
        """Take in an evaluation, ``others`` are its loss and further metrics; returns what is logged for it."""
        others = others or {}
        self.final_accuracy = accuracy
        self.final_figures = {name: value for name, value in others.items() if name in FURTHER_METRICS}
        if not accuracy <= self.top_accuracy:  # also true while the top is NaN
            self.top_accuracy, self.top_accuracy_round = accuracy, round
        best = np.fmax(np.asarray(self.best_class_accuracy), per_class) if self.best_class_accuracy else per_class
        self.best_class_accuracy = best.tolist()
        self._reach(round, {"accuracy": accuracy, **others})
        return {
            metrics.TEST_ACCURACY: accuracy,
            metrics.TOP_ACCURACY: self.top_accuracy,
            metrics.FORGETTING: forgetting(best, per_class),
            metrics.CLASS_ACCURACY: per_class.tolist(),
            **{metrics.tested(name): value for name, value in self.final_figures.items()},
        }

    def summary(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            metrics.TOP_ACCURACY: self.top_accuracy if self.top_accuracy_round else None,
            metrics.TOP_ACCURACY_ROUND: self.top_accuracy_round,
            metrics.FINAL_ACCURACY: self.final_accuracy if self.top_accuracy_round else None,
            metrics.TOTAL_BYTES: self.total_bytes,
            metrics.TOTAL_SECONDS: self.total_seconds,
            **self.reached,
            **{metrics.final(name): value for name, value in self.final_figures.items()},
        }
        if self.diverged_round is not None:
            values[metrics.DIVERGED_ROUND] = self.diverged_round
        return values


def monitored(scores: Scores) -> dict[str, float]:
    """The metrics of an evaluation that callbacks can monitor and ``Trainer.test`` returns."""
    further = {metrics.tested(name): value for name, value in scores.further.items()}
    return {metrics.TEST_ACCURACY: scores.accuracy, metrics.TEST_LOSS: scores.loss, **further}
