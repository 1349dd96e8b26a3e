"""What each address of the dashboard answers: the state of the store as plain values."""

import dataclasses
import functools
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fl_platform.config.regular_files import open_regular
from fl_platform.dashboard.classes import class_accuracy
from fl_platform.dashboard.filters import parse, select
from fl_platform.dashboard.importance import importances
from fl_platform.dashboard.quantities import Catalogue
from fl_platform.dashboard.store import State, Store
from fl_platform.dashboard.usage import usage_charts
from fl_platform.errors import UserError, unknown_name, visible
from fl_platform.reporting import render, tables
from fl_platform.reporting.lines import AXES, Chart, make_lines
from fl_platform.reporting.measures import MEASURES
from fl_platform.reporting.partitions import class_counts
from fl_platform.reporting.shown import (
    OWN_COLUMNS,
    ShownRun,
    details,
    differing_among,
    is_setting,
    row,
    table_values,
    visible_once,
)
from fl_platform.runs import metrics
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.frames import to_frames
from fl_platform.runs.liveness import error_file
from fl_platform.runs.record import RunRecord
from fl_platform.runs.resources import FILE

MOST_POINTS = 2000
MOST_COLUMNS = 60
_KEPT_SELECTIONS = 32
_LOG_TAIL = 32_768
_IN_TABLES = (metrics.ROUND, metrics.TEST_ACCURACY, metrics.FORGETTING, metrics.TOTAL_BYTES, metrics.TOTAL_SECONDS)


class Views:
    """Answers by name; each takes the parameters of the query as text."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._rows: dict[str, tuple[ShownRun, dict[str, Any]]] = {}
        self._catalogue = Catalogue(State(), self._row)
        self._selections: dict[str, Chosen] = {}
        self._selecting = threading.Lock()
        self._tables: tuple[object, dict[str, Any]] | None = None

    def overview(self, query: dict[str, str]) -> dict[str, Any]:
        """Sweeps, and the runs that changed since the version the browser has; all of them when one was lost."""
        state = self.store.state
        since = _whole(query, "since", 0)
        is_full = since < max(state.complete_since, 1) or since > state.version
        changed = [run_id for run_id, version in state.versions.items() if is_full or version > since]
        if is_full:
            self._rows = {run_id: kept for run_id, kept in self._rows.items() if run_id in state.runs}
        return {
            "version": state.version,
            "full": is_full,
            "root": visible(self.store.root),
            "now": time.time(),
            "unread": state.unread,
            "is_looking": self.store.is_looking,
            "runs": [self._row(run_id, state.runs[run_id]) for run_id in changed],
            "sweeps": [sweep.values for sweep in state.sweeps],
            "warnings": [visible(text) for text in state.warnings[:20]],
        }

    def _row(self, run_id: str, run: ShownRun) -> dict[str, Any]:
        kept = self._rows.get(run_id)
        if kept is None or kept[0] is not run:
            kept = self._rows[run_id] = (run, row(run))
        return kept[1]

    def select(self, query: dict[str, str]) -> dict[str, Any]:
        """What the filter leaves: ids, the keys that differ, and the asked columns, one value per id."""
        chosen = self._chosen(query)
        catalogue, runs, keys = chosen.catalogue, chosen.runs, chosen.differing
        settings = [key for key in keys if key not in OWN_COLUMNS and is_setting(key)]
        names = dict.fromkeys([*settings, *_listed(query, "columns")])
        if len(names) > MOST_COLUMNS:
            names = dict.fromkeys(list(names)[:MOST_COLUMNS])
        columns = {}
        for name in names:
            try:
                columns[visible(name)] = catalogue.coded(name, runs)
            except UserError:
                continue  # a saved set of columns may name what these runs do not have
        return {
            "ids": [visible_once(run.log.run_id) for run in runs],
            "settings": [visible(key) for key in settings],
            "differing": [visible(key) for key in keys],
            "keys": sorted(map(visible, catalogue.config_keys)),
            "figures": sorted(map(visible, catalogue.numbers)),
            "columns": columns,
        }

    def lines(self, query: dict[str, str]) -> dict[str, Any]:
        """One chart; lines that are smoothed come with what they are made of."""
        axis = query.get("axis", "rounds")
        if axis not in AXES:
            raise unknown_name("axis", axis, AXES)
        chart = Chart(
            metric=query.get("metric", metrics.TEST_ACCURACY),
            by=tuple(key for key in query.get("by", "algorithm,scenario").split(",") if key),
            axis=axis,
            points=min(_whole(query, "points", 300), MOST_POINTS),
            smooth=_whole(query, "smooth", 1),
            start=_number(query, "from", float("-inf")),
            end=_number(query, "to", float("inf")),
        )
        chosen = self._chosen(query)
        runs, methods = chosen.runs, chosen.catalogue.methods
        made = make_lines(runs, chart, methods)
        if chart.smooth > 1:
            raw = make_lines(runs, dataclasses.replace(chart, smooth=1), methods)["lines"]
            for line, own in zip(made["lines"], raw, strict=True):
                line["raw"] = {"x": own["x"], "mean": own["mean"]}
        return made

    def metrics(self, query: dict[str, str]) -> dict[str, Any]:
        """What can be drawn, and what runs can be grouped by."""
        chosen = self._chosen(query)
        names = {name for shape in {run.metrics for run in chosen.runs} for name in shape} - {metrics.ROUND}
        return {"metrics": sorted(map(visible, names)), "keys": list(map(visible, chosen.differing))}

    def importance(self, query: dict[str, str]) -> dict[str, Any]:
        """How much the objective depends on each setting, the seed included: it shows how large chance is."""
        chosen = self._chosen(query)
        catalogue, runs = chosen.catalogue, chosen.runs
        objective = catalogue.resolve(query.get("objective", metrics.TOP_ACCURACY))
        names = [key for key in chosen.differing if is_setting(key)]
        columns = [catalogue.column(name, runs) for name in names]
        values = [value if isinstance(value, float) else None for value in catalogue.column(objective, runs)]
        return importances([visible(name) for name in names], columns, values)

    def tables(self, query: dict[str, str]) -> dict[str, Any]:
        """Tables 1 and 2 of the chosen runs; made again only when a run has ended since."""
        value, unit = query.get("value", "top_accuracy"), query.get("unit", "rounds")
        target = _number(query, "target", None)
        if value not in MEASURES:
            raise unknown_name("value", value, MEASURES)
        runs = self._chosen(query).runs
        key = (value, unit, target, frozenset((run.log.run_id, run.log.status) for run in runs))
        if self._tables is None or self._tables[0] != key:
            self._tables = (key, _tables(runs, value, unit, target))
        return self._tables[1]

    def run(self, query: dict[str, str]) -> dict[str, Any]:
        """One run: everything it says about itself, and the end of what it printed."""
        state = self.store.state
        found = _one(state, query)
        trial = state.trial(found.log.run_id)
        values = {
            **self._row(found.log.run_id, found),
            **details(found),
            "log": None,
            "classes": class_accuracy(found.log),
        }
        if trial is not None:
            values |= {"trial": trial.number, "log": log_tail(trial.log)}
        if values["log"] is None and (attempt := _attempt(found.log)) and (error := error_file(attempt)):
            values["log"] = log_tail(error)
        return values

    def resources(self, query: dict[str, str]) -> dict[str, Any]:
        """What a run used of its machine over time, as charts; none for a run without a record of it."""
        attempt = _attempt(_one(self.store.state, query).log)
        return {"charts": usage_charts(attempt / FILE)} if attempt else {"charts": []}

    def partition(self, query: dict[str, str]) -> dict[str, Any]:
        """Samples by worker and class of a run's data, where the data set is on this machine."""
        return class_counts(_one(self.store.state, query).log.config)

    def _chosen(self, query: dict[str, str]) -> "Chosen":
        """The runs named by ``ids`` that the filter ``q`` leaves; names of runs that are gone are passed over."""
        text = query.get("q", "").strip()
        with self._selecting:
            state = self.store.state
            if self._catalogue.state is not state:
                self._rows = {run_id: kept for run_id, kept in self._rows.items() if run_id in state.runs}
                self._catalogue = Catalogue(state, self._row)
                self._selections.clear()
            catalogue = self._catalogue
            chosen = self._selections.get(text)
            if chosen is None:
                chosen = Chosen(catalogue, select(parse(text), catalogue, state.runs.values()))
                if len(self._selections) >= _KEPT_SELECTIONS:
                    self._selections.pop(next(iter(self._selections)))
                self._selections[text] = chosen
        if "ids" in query:
            named = dict.fromkeys(query["ids"].split(","))
            return Chosen(catalogue, [run for run in chosen.runs if run.log.run_id in named])
        return chosen


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Some runs of a state."""

    catalogue: Catalogue
    runs: list[ShownRun]

    @functools.cached_property
    def differing(self) -> list[str]:
        return differing_among(self.runs, self.catalogue.differing)


def _listed(query: dict[str, str], name: str) -> list[str]:
    return [part for part in query.get(name, "").split(",") if part]


def _one(state: State, query: dict[str, str]) -> ShownRun:
    run_id = query.get("id", "")
    if run_id not in state.runs:
        raise UserError(f"id={visible(run_id)} is no run that is known here")
    return state.runs[run_id]


def _tables(runs: Sequence[ShownRun], value: str, unit: str, target: float | None) -> dict[str, Any]:
    logs = []
    for run in runs:
        history = run.log.history
        names = [name for name in _IN_TABLES if name in history.column_names]
        logs.append(dataclasses.replace(run.log, history=history.select(names)))
    frames = to_frames(logs)
    made: dict[str, Any] = {}
    for name, make in (
        ("first", partial(tables.statistic_table, value=value)),
        ("second", partial(tables.target_table, unit=unit, target=target)),
    ):
        try:
            table = make(frames, select="best")
            files = {"tex": render.render(table, "latex"), "csv": render.render(table, "csv")}
            made[name] = table_values(table) | {"files": files}
        except UserError as error:
            made[name] = {"error": visible(error)}
    return made


def _attempt(record: RunRecord) -> Path | None:
    """The newest attempt of a run that was read from its directory."""
    source = Path(record.source)
    return RunDirectory(source.parent, source.name).newest_attempt() if source.is_dir() else None


def log_tail(path: Path) -> str | None:
    """The end of a log, as lines: a progress bar's returns become line ends."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, 2) - _LOG_TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    return "\n".join(visible(line) for line in text.replace("\r", "\n").split("\n"))


def _whole(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise UserError(f"{name}={visible(text)} is not allowed; it must be a whole number >= 0")
    return int(text)


def _number(query: dict[str, str], name: str, default: Any) -> Any:
    text = query.get(name, "")
    if not text:
        return default
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{name}={visible(text)} is not a number") from None
