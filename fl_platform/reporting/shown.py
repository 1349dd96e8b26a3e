"""Runs as a browser shows them: figures, what differs between their configurations, and tables, ready for JSON."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from itertools import compress
from operator import ne
from typing import Any

import numpy as np
import pyarrow as pa

from fl_platform.config.schema import flatten, known_keys
from fl_platform.errors import visible
from fl_platform.paper.methods import Method
from fl_platform.reporting.cells import scenario_of
from fl_platform.reporting.layout import Table
from fl_platform.reporting.statistics import Numbers
from fl_platform.reporting.styles import distinct, method_of
from fl_platform.runs import metrics
from fl_platform.runs.record import PROVENANCE, RunRecord, readable

OWN_COLUMNS = frozenset(
    {"seed", "algorithm.name", "data.name", "data.partition", "data.dirichlet_omega", "cohort_size", "num_rounds"}
)
"""Keys that a table of runs shows in columns of their own."""


@dataclass(frozen=True)
class ShownRun:
    """``config`` is the resolved configuration as flat text by dotted key; ``look`` is its method's label and style
    among the methods of all runs, where another one has its own label or colour."""

    log: RunRecord
    config: dict[str, str]
    algorithm: str
    scenario: str
    updated: float = 0.0
    look: Method | None = None
    _figures: dict[str, float | str | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def method(self) -> Method:
        return self.look or method_of(*self.described)

    @cached_property
    def described(self) -> tuple[str, str | None, str | None]:
        """The name, label and group of its method, as the run recorded them."""
        return self.algorithm, self.config.get("run.label"), self.config.get("run.method_group")

    def value(self, key: str) -> str:
        """What the run is grouped by under ``key``: algorithm, scenario, run or a configuration key."""
        if key == "algorithm":
            return self.method.label
        if key == "scenario":
            return self.scenario
        if key == "run":
            return f"{self.method.label}, seed {self.config.get('seed', '?')} ({self.log.run_id})"
        if key in ("status", "sweep"):
            return visible(getattr(self.log, key)) or "none"
        return self.config.get(key, "absent")

    @cached_property
    def text(self) -> str:
        """Everything that names the run, in lower case, a line each."""
        log = self.log
        parts = (log.run_id, log.name, log.status, self.value("algorithm"), self.algorithm, self.scenario, log.sweep)
        return "\n".join(map(visible_once, (*parts, *log.tags))).lower()

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """What the run logged as numbers each round."""
        return tuple(column.name for column in self.log.history.schema if pa.types.is_floating(column.type))

    def figure(self, name: str) -> float | str | None:
        """A figure of the run's summary, else the newest value of a metric; None where there is neither."""
        if name not in self._figures:
            self._figures[name] = self._find_figure(name)
        return self._figures[name]

    def _find_figure(self, name: str) -> float | str | None:
        found = self.log.summary.get(name)
        if isinstance(found, str):
            return visible(found)
        return finite(found) if finite(found) is not None else last(numbers(self.log, name))


def shown(log: RunRecord, updated: float = 0.0) -> ShownRun:
    """The run as the browser gets it; one that cannot be read is shown as crashed, with a warning."""
    log = readable(log)
    config = {name: visible_once(text_of(value)) for name, value in flatten(log.config)}
    return ShownRun(log, config, config.get("algorithm.name", "unknown"), scenario_text(log), updated)


def relabelled(runs: Mapping[str, ShownRun]) -> dict[str, ShownRun]:
    """Those of the runs whose method has to be shown otherwise, so that no two methods look or are called the same."""
    own = {name: method_of(*name) for name in sorted({run.described for run in runs.values()}, key=str)}
    found = distinct(own.values())
    wanted = {name: found[method.name] for name, method in own.items() if found[method.name] != method}
    return {
        run_id: replace(run, look=look)
        for run_id, run in runs.items()
        if run.look != (look := wanted.get(run.described))
    }


@lru_cache(maxsize=1 << 16)
def visible_once(text: str) -> str:
    """``visible`` with its results kept: the texts of ten thousand configurations are few, and then shared."""
    return visible(text)


def text_of(value: Any) -> str:
    """A value as it is written on the command line: null, true, 0.1."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


@cache
def _circumstances() -> frozenset[str]:
    """Keys that say where or how a run is carried out, not which experiment it is."""
    return frozenset(key for key, field in known_keys().items() if not field.metadata.get("identity", True))


_SAID_ELSEWHERE = frozenset(
    f"{PROVENANCE}.{name}" for name in ("id", "group", "label", "kind", "method_group", "data_label")
)
"""What a run recorded about itself that follows from its other keys."""


def is_setting(key: str) -> bool:
    """Whether a configuration key says which experiment a run is; keys nobody declared do, a run's origin does not."""
    return key not in _circumstances() and not key.startswith(f"{PROVENANCE}.")


def differing(runs: Iterable[ShownRun]) -> list[str]:
    """Configuration keys that differ among the runs, without what follows from other keys (``run.id``).

    They are sorted, those of ``evaluation`` last: where there is little room, what was trained is told first. A key
    that only some runs have differs too. The options of an algorithm (``algorithm.*``) are compared among the runs of
    that algorithm: that FedProx has a mu and FedAvg has none is said by their names.
    """
    references: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    found: set[str] = set()
    for run in runs:
        keys = tuple(run.config)
        reference = references.get(run.algorithm)
        if reference is None:
            references[run.algorithm] = (keys, tuple(run.config.values()))
        elif keys == reference[0]:  # nearly always, and then the comparison is fast
            found.update(compress(keys, map(ne, run.config.values(), reference[1])))
        else:
            found |= _unequal(dict(zip(*reference, strict=True)), run.config)
    shared = [
        {key: text for key, text in zip(*reference, strict=True) if not _is_option(key)}
        for reference in references.values()
    ]
    for other in shared[1:]:
        found |= _unequal(shared[0], other)
    return sorted(found - _SAID_ELSEWHERE, key=lambda key: (key.startswith("evaluation."), key))


def differing_among(runs: Sequence[ShownRun], keys: Iterable[str]) -> list[str]:
    """``differing`` of some of the runs whose ``differing`` is ``keys``: no other key can differ among fewer runs."""
    algorithms = {run.algorithm for run in runs}
    found = []
    for key in keys:
        if _is_option(key):
            is_found = len({(run.algorithm, run.config.get(key)) for run in runs}) > len(algorithms)
        else:
            is_found = len({run.config.get(key) for run in runs}) > 1
        if is_found:
            found.append(key)
    return found


def _unequal(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def _is_option(key: str) -> bool:
    return key.startswith("algorithm.") and key != "algorithm.name"


def differing_settings(runs: Iterable[ShownRun]) -> list[str]:
    """The keys of ``differing`` that say which experiment a run is, other than its seed."""
    return [key for key in differing(runs) if key != "seed" and is_setting(key)]


def scenario_text(log: RunRecord) -> str:
    """The title of a run's scenario; "unknown" where its configuration does not say."""
    row = {f"config.{name}": value for name, value in flatten(log.config)}
    try:
        return visible(scenario_of(row).label)
    except (TypeError, ValueError):  # a log from elsewhere may hold anything under these keys
        return "unknown"


def numbers(log: RunRecord, key: str) -> Numbers:
    """A column of the history, NaN where nothing was logged; empty where it is not a column of numbers."""
    place = log.history.schema.get_field_index(key)
    if place < 0:
        return np.empty(0)
    column = log.history.column(place)
    if not pa.types.is_primitive(column.type):
        return np.empty(0)
    if column.num_chunks == 1 and column.type == pa.float64() and column.null_count == 0:
        return np.asarray(column.chunk(0).to_numpy(), dtype=np.float64)  # a view; joining chunks would copy
    return np.asarray(column.to_numpy(), dtype=np.float64)


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
        "ending": log.ending.value,
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
    }


def last(values: Numbers) -> float | None:
    """The last finite value; None without one."""
    if len(values) and math.isfinite(values[-1]):
        return float(values[-1])
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
