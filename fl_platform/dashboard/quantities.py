"""Everything a run can be filtered, grouped, listed or drawn by, found by name.

A quantity is a field of the run table (``status``, ``top``), a configuration key (``local_lr``), a figure of the
summary or a metric's newest value (``test/top_accuracy``).
"""

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

from fl_platform.dashboard.store import State
from fl_platform.errors import UserError, did_you_mean, visible
from fl_platform.paper.methods import Method
from fl_platform.reporting.shown import ShownRun, differing
from fl_platform.reporting.styles import distinct
from fl_platform.runs import metrics
from fl_platform.runs.record import PROVENANCE
from fl_platform.sweeps.states import TrialState

Values = tuple[Any, ...]
Getter = Callable[[ShownRun], Values]

FIELDS = (
    "id",
    "name",
    "status",
    "algorithm",
    "scenario",
    "sweep",
    "tags",
    "round",
    "top",
    "accuracy",
    "forgetting",
    "seconds",
    "bytes",
    "started",
    "updated",
    "trial",
    "end",
)
_NOT_FIGURES = {metrics.STATUS, metrics.ENDING, "run", metrics.FINGERPRINT}


class Catalogue:
    """The quantities of one state of the store; ``numbers`` are the figures and metrics that are numbers."""

    def __init__(self, state: State, row_of: Callable[[str, ShownRun], dict[str, Any]]) -> None:
        self.state = state
        self._row_of = row_of
        self.config_keys: set[str] = set()
        self.figures: set[str] = set()
        self.numbers: set[str] = set()
        keys: set[tuple[str, ...]] = set()  # ten thousand runs have few different sets of names
        logged: set[tuple[str, ...]] = set()
        texts: dict[tuple[str, ...], set[str]] = {}  # names of a summary of which no number was seen yet
        for run in state.runs.values():
            summary = run.log.summary
            keys.add(tuple(run.config))
            logged.add(run.metrics)
            left = texts.setdefault(tuple(summary), set(summary))
            left -= {name for name in left if isinstance(summary[name], int | float)}
        self.config_keys.update(name for names in keys for name in names)
        self.figures.update(name for names in texts for name in names)
        self.numbers.update(name for names, left in texts.items() for name in names if name not in left)
        self.numbers.update(name for names in logged for name in names)
        self.numbers.discard(metrics.ROUND)
        self.figures = (self.figures | self.numbers) - _NOT_FIGURES

    @functools.cached_property
    def differing(self) -> list[str]:
        """Configuration keys that differ among all runs."""
        return differing(self.state.runs.values())

    @functools.cached_property
    def methods(self) -> dict[str, Method]:
        """The methods of all runs by name: one looks the same in every chart, whatever is filtered."""
        return distinct(run.method for run in {run.algorithm: run for run in self.state.runs.values()}.values())

    def resolve(self, name: str) -> str:
        """The quantity that ``name`` means: its full name, or the end of one configuration key after a dot."""
        if name in FIELDS or name in self.config_keys or name in self.figures:
            return name
        ends = sorted(key for key in self.config_keys if key.endswith(f".{name}"))
        if len(ends) == 1:
            return ends[0]
        if ends:
            raise UserError(f"{visible(name)} is the end of several keys; write {' or '.join(ends)}")
        known = [*FIELDS, *sorted(self.config_keys), *sorted(self.figures)]
        short = [key.rpartition(".")[2] for key in self.config_keys]
        parts = [key for key in known if name in re.split(r"[._/]", key) and not key.startswith(f"{PROVENANCE}.")]
        hint = f"; did you mean {' or '.join(parts[:3])}?" if parts else did_you_mean(name, [*known, *short])
        raise UserError(f"no run has a key or figure '{visible(name)}'{hint}")

    def getter(self, name: str) -> Getter:
        """The values of a run under a resolved name: none where it has none, several where any of them counts."""
        if name == "algorithm":
            return lambda run: (run.value("algorithm"), run.algorithm)
        if name in ("trial", "end"):
            return lambda run: self._of_trial(run, name)
        if name == "tags":
            return lambda run: tuple(visible(tag) for tag in run.log.tags)
        if name in ("status", "scenario", "sweep"):
            return lambda run: _known(run.value(name))
        if name in FIELDS:
            return lambda run: _known(self._row_of(run.log.run_id, run)[name])
        if name in self.config_keys:
            return lambda run: _known(run.config.get(name))
        return lambda run: _known(run.figure(name))

    def _of_trial(self, run: ShownRun, name: str) -> Values:
        """``end`` is how a run ended; a trial that early termination ended is `stopped`, as its ledger has it."""
        trial = self.state.trial(run.log.run_id)
        if trial is None:
            return () if name == "trial" else (run.log.ending.value,)
        if name == "trial":
            return (trial.number,)
        return (trial.state if trial.state is TrialState.STOPPED else run.log.ending.value,)

    def column(self, name: str, runs: Iterable[ShownRun]) -> list[Any]:
        """One plain value per run, None where it has none; numbers where the text of a configuration is one."""
        coded = self.coded(name, runs)
        return [coded["values"][code] for code in coded["codes"]]

    def coded(self, name: str, runs: Iterable[ShownRun]) -> dict[str, list[Any]]:
        """A column as its different values and, per run, the place of its own: few texts, many runs."""
        name = self.resolve(name)
        found: list[Any]
        if name in self.config_keys and name not in FIELDS:
            found = [run.config.get(name) for run in runs]
        else:
            get = self.getter(name)
            found = [values[0] if (values := get(run)) else None for run in runs]
        places: dict[Any, int] = {}
        codes = [places.setdefault(value, len(places)) for value in found]
        return {"values": [None if value is None else plain(value) for value in places], "codes": codes}


def _known(value: Any) -> Values:
    return () if value is None or value == "" else (value,)


def plain(value: Any) -> Any:
    """A number where the value is one, written as text or not."""
    found = as_number(value)
    return value if found is None else found


def as_number(value: Any) -> float | None:
    """The number a value is or spells, finite; None for all other text."""
    if isinstance(value, int | float):
        return float(value)
    text = str(value)
    if not text or text[0] not in "0123456789+-.":
        return None
    try:
        found = float(text)
    except ValueError:
        return None
    return found if found - found == 0 else None
