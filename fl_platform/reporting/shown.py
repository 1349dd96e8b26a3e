"""A run as a browser is told about it: figures, the settings that tell it apart, and tables, ready for JSON."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from fl_platform.config.options import default_of
from fl_platform.config.schema import flatten, known_keys
from fl_platform.errors import visible
from fl_platform.paper.methods import Method
from fl_platform.reporting.layout import Table
from fl_platform.reporting.measures import scenario_of
from fl_platform.reporting.statistics import Numbers
from fl_platform.reporting.styles import method_of
from fl_platform.runs import metrics
from fl_platform.runs.record import RunRecord, readable

_IN_COLUMNS = {
    "seed",
    "algorithm.name",
    "data.name",
    "data.partition",
    "data.dirichlet_omega",
    "cohort_size",
    "num_rounds",
}


@dataclass(frozen=True)
class ShownRun:
    """``config`` is flat text by dotted key; ``settings`` are the keys that differ from the defaults."""

    log: RunRecord
    config: dict[str, str]
    settings: dict[str, str]
    algorithm: str
    scenario: str
    updated: float = 0.0

    @property
    def method(self) -> Method:
        return method_of(self.algorithm, self.config.get("run.label"), self.config.get("run.kind"))

    def value(self, key: str) -> str:
        """What the run is grouped by under ``key``: algorithm, scenario, run or a configuration key."""
        if key == "algorithm":
            return self.method.label
        if key == "scenario":
            return self.scenario
        if key == "run":
            return f"{self.method.label}, seed {self.config.get('seed', '?')} ({self.log.run_id})"
        return self.config.get(key, "none")


def shown(log: RunRecord, updated: float = 0.0) -> ShownRun:
    """The run as the browser gets it; one that cannot be read is shown as crashed, with a warning."""
    log = readable(log)
    config = {name: visible(text_of(value)) for name, value in flatten(log.config)}
    plain = _defaults()
    settings = {
        name: text
        for name, text in config.items()
        if name not in _IN_COLUMNS and (name.startswith("algorithm.") or plain.get(name, text) != text)
    }
    return ShownRun(log, config, settings, config.get("algorithm.name", "unknown"), scenario_text(log), updated)


@cache
def _defaults() -> dict[str, str]:
    """Defaults of the keys that say which experiment a run is."""
    named = {key: field for key, field in known_keys().items() if field.metadata.get("identity", True)}
    return {key: text_of(default_of(field)) for key, field in named.items() if default_of(field) is not None}


def text_of(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def scenario_text(log: RunRecord) -> str:
    row = {f"config.{name}": value for name, value in flatten(log.config)}
    try:
        return visible(scenario_of(row).label)
    except (TypeError, ValueError):  # a log from elsewhere may hold anything under these keys
        return "unknown"


def numbers(log: RunRecord, key: str) -> Numbers:
    """A column of the history, NaN where nothing was logged; empty where it is not a column of numbers."""
    if key not in log.history.column_names or not pa.types.is_primitive(log.history[key].type):
        return np.empty(0)
    return np.asarray(log.history[key].to_numpy(), dtype=np.float64)


def finite(value: Any) -> float | None:
    """JSON has no NaN."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def row(run: ShownRun) -> dict[str, Any]:
    """A line of the run table."""
    log = run.log
    method = run.method
    rounds, accuracy = numbers(log, metrics.ROUND), numbers(log, metrics.TEST_ACCURACY)
    known = accuracy[np.isfinite(accuracy)]
    return {
        "id": visible(log.run_id),
        "status": visible(log.status),
        "algorithm": method.label,
        "color": method.style.color,
        "scenario": run.scenario,
        "seed": finite(_number(run.config.get("seed"))),
        "round": finite(rounds[-1]) if len(rounds) else 0,
        "rounds": finite(_number(run.config.get("num_rounds"))),
        "accuracy": finite(known[-1]) if len(known) else None,
        "top": finite(known.max()) if len(known) else None,
        "forgetting": last(numbers(log, metrics.FORGETTING)),
        "seconds": last(numbers(log, metrics.TOTAL_SECONDS)),
        "bytes": last(numbers(log, metrics.TOTAL_BYTES)),
        "started": log.started,
        "updated": run.updated,
        "name": visible(log.name),
        "sweep": visible(log.sweep),
        "tags": [visible(tag) for tag in log.tags],
        "settings": run.settings,
    }


def last(values: Numbers) -> float | None:
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def table_values(table: Table) -> dict[str, Any]:
    """A table's texts, for a browser to lay out."""
    return {
        "title": visible(table.title),
        "corner": visible(table.corner),
        "header": [[[visible(text), span] for text, span in line] for line in table.header],
        "blocks": [
            [[visible(line.label), [[visible(cell.text), cell.is_bold] for cell in line.cells]] for line in block]
            for block in table.blocks
        ],
        "notes": [visible(note) for note in table.notes],
    }


def details(run: ShownRun) -> dict[str, Any]:
    """Everything a run says about itself in single values."""
    summary = {visible(name): visible(text_of(value)) for name, value in flatten(run.log.summary)}
    latest = {
        visible(name): value
        for name in run.log.history.column_names
        if (value := last(numbers(run.log, name))) is not None
    }
    config = {visible(name): text for name, text in run.config.items()}
    return {"config": config, "summary": summary, "latest": latest, "source": visible(run.log.source)}
