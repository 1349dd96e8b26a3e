"""Targets of a run: accuracies, or other metrics with a bound, such as ``perplexity<=4.5`` or ``epsilon>=8``."""

import math
import re
from dataclasses import dataclass
from typing import Any

from fl_platform.errors import UserError, did_you_mean

KEY = "evaluation.targets"
FURTHER_METRICS = ("macro_f1", "balanced_accuracy", "perplexity", "calibration_error")
"""Figures of an evaluation beside accuracy and loss (``evaluation.metrics``)."""

_BETTER_SMALLER = ("loss", "perplexity", "calibration_error")
_SHARES = ("accuracy", "macro_f1", "balanced_accuracy", "calibration_error")
EPSILON = "epsilon"
"""Privacy spent, which only grows: its target is the round in which a budget is used up."""
_NAMES = ("accuracy", "loss", *FURTHER_METRICS, EPSILON)


@dataclass(frozen=True)
class Target:
    """A bound of a metric that is reached from one side, the better one."""

    metric: str  # accuracy, loss, epsilon or one of FURTHER_METRICS
    value: float

    @property
    def is_better_smaller(self) -> bool:
        return self.metric in _BETTER_SMALLER

    @property
    def text(self) -> str:
        """As keys have it: ``0.9`` for an accuracy, ``perplexity<=4.5``."""
        if self.metric == "accuracy":
            return f"{self.value:g}"
        return f"{self.metric}{'<=' if self.is_better_smaller else '>='}{self.value:g}"

    @property
    def title(self) -> str:
        """As tables have it: ``ac=90%``, ``perplexity<=4.5``."""
        return f"ac={self.value * 100:g}%" if self.metric == "accuracy" else self.text

    def is_reached(self, found: float) -> bool:
        """Whether a value is at the bound or better; one that is not a number is not."""
        return found <= self.value if self.is_better_smaller else found >= self.value


def parse_target(given: Any) -> Target:
    """Return a number, an accuracy, or a text such as ``macro_f1>=0.8`` as a target; UserError for anything else."""
    if isinstance(given, str) and (found := re.fullmatch(r"\s*([a-z_0-9]+)\s*(<=|>=)\s*([-+.0-9eE]+)\s*", given)):
        name, sign, number = found.groups()
        if name not in _NAMES:
            raise UserError(
                f"{KEY}: '{given}' names no metric; there is {', '.join(_NAMES)}{did_you_mean(name, _NAMES)}"
            )
        target = Target(name, _number(number, given))
        if (sign == "<=") != target.is_better_smaller:
            reason = "holds from the start" if name == EPSILON else "would be reached by getting worse"
            raise UserError(f"{KEY}: '{given}' {reason}; write '{target.text}'")
    else:
        target = Target("accuracy", _number(given, given))
    if not target.value > 0 or (target.metric in _SHARES and target.value > 1):
        allowed = "> 0 and <= 1" if target.metric in _SHARES else "> 0"
        raise UserError(f"{KEY}=[{given}] is not allowed; it must be {allowed}")
    return target


def _number(text: Any, given: Any) -> float:
    try:
        value = math.nan if isinstance(text, bool) else float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{KEY}: '{given}' is no target; write an accuracy such as 0.9, or 'perplexity<=4.5'")
    return value


def plain_target(given: Any) -> float | str:
    """Return a target as a configuration holds it: accuracies as numbers, others as their text."""
    target = parse_target(given)
    return target.value if target.metric == "accuracy" else target.text


def metrics_of(metrics: list[str], targets: list[Any]) -> list[str]:
    """The further metrics to compute: those asked for, and those that targets name."""
    named = {parse_target(target).metric for target in targets}
    return [name for name in FURTHER_METRICS if name in metrics or name in named]
