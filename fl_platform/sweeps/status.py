"""How far a sweep is: counts, best trial, time left."""

import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from fl_platform.runs import metrics
from fl_platform.runs.status import RunStatus
from fl_platform.sweeps.definition import Sweep
from fl_platform.sweeps.ledger import Entry, Ledger
from fl_platform.sweeps.states import CLOSED, TrialState

LEFT = "left"
"""What a status counts trials as that are still to be started."""


@dataclass(frozen=True)
class Status:
    """The ledger in a few numbers. ``counts`` has finished, diverged, stopped, failed, running, shared and left."""

    counts: dict[str, int]
    total: int
    metric: str
    best: Entry | None
    failed: list[Entry]
    seconds_left: float | None

    @property
    def done(self) -> int:
        """How many trials have ended."""
        return sum(self.counts[state] for state in CLOSED)

    def line(self) -> str:
        """``12/32 done (11 finished, 1 diverged), 2 running, 18 left, best ..., 4 min left``."""
        ended = [f"{self.counts[state]} {state}" for state in CLOSED if self.counts[state]]
        parts = [f"{self.done}/{self.total} done" + (f" ({', '.join(ended)})" if ended else "")]
        parts += [f"{self.counts[state]} {state}" for state in (RunStatus.RUNNING, LEFT)]
        if self.best is not None:
            parts.append(f"best {self.metric}={self.best.summary[self.metric]:.4f} by trial {self.best.number}")
        if self.seconds_left is not None and self.counts[LEFT] + self.counts[RunStatus.RUNNING]:
            parts.append(f"about {duration(self.seconds_left)} left")
        return ", ".join(parts)


def status_of(sweep: Sweep, ledger: Ledger, retries: int, at_most: int) -> Status:
    """Count the first ``at_most`` trials of a ledger; failed ones are left to be done up to ``retries`` times."""
    entries = ledger.entries()[:at_most]
    counts: Counter[str] = Counter()
    for entry in entries:
        is_running = entry.state is TrialState.STARTED
        state = RunStatus.RUNNING.value if is_running else entry.state.value
        counts[LEFT if ledger.is_open(entry, retries) else state] += 1
    counts[LEFT] += max(0, at_most - len(entries))
    metric = sweep.metric or metrics.TOP_ACCURACY
    return Status(
        counts={state: counts[state] for state in (*(state.value for state in CLOSED), RunStatus.RUNNING.value, LEFT)},
        total=at_most,
        metric=metric,
        best=best_entry(entries, metric, maximise=sweep.maximises or sweep.metric is None),
        failed=[entry for entry in entries if entry.state is TrialState.FAILED and not ledger.is_open(entry, retries)],
        seconds_left=estimate(entries, counts[LEFT], counts[RunStatus.RUNNING]),
    )


def best_entry(entries: list[Entry], metric: str, *, maximise: bool) -> Entry | None:
    """The finished trial with the best value; the first of equals."""
    finished = [
        entry for entry in entries if entry.state is TrialState.FINISHED and is_number(entry.summary.get(metric))
    ]
    sign = -1 if maximise else 1
    return min(finished, key=lambda entry: sign * entry.summary[metric], default=None)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, and no larger than a float."""
    is_numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return is_numeric and abs(value) <= sys.float_info.max


def estimate(entries: list[Entry], left: int, running: int) -> float | None:
    """Seconds until the end, if the rest takes as long as what was done and as many run at the same time.

    A trial that went on with a run, or took a finished one as it was, counts with the time of the whole run.
    """
    spent = [max(entry.seconds, _training_seconds(entry)) for entry in entries if entry.state.is_done and entry.seconds]
    if not spent:
        return None
    mean = sum(spent) / len(spent)
    under_way = sum(
        min(mean, max(0.0, time.time() - entry.began))
        for entry in entries
        if entry.state is TrialState.STARTED and entry.began
    )
    return float(max(0.0, (left + running) * mean - under_way) / max(1, running))


def _training_seconds(entry: Entry) -> float:
    value = entry.summary.get(metrics.TOTAL_SECONDS, 0.0)
    return float(value) if is_number(value) else 0.0


def duration(seconds: float) -> str:
    """Seconds as text with a unit."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
