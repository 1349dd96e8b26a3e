"""Which runs form a cell of a table, one method in one scenario over its seeds, and which setting stands for it."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fl_platform.config.options import default_of, enters_identity
from fl_platform.config.partitions import parameters, partition_text
from fl_platform.config.schema import PLACEMENT_FIELDS, known_keys
from fl_platform.errors import UserError
from fl_platform.paper.methods import Method
from fl_platform.paper.scenarios import Scenario
from fl_platform.reporting.measures import per_run
from fl_platform.reporting.selection import Selection
from fl_platform.reporting.styles import methods_in
from fl_platform.runs.frames import CASE, Runs
from fl_platform.runs.status import ENDED, RunStatus


class Tried(NamedTuple):
    """A run of a setting; ``point`` is the part of the setting that has a meaning for every method."""

    run_id: str
    status: str
    point: str


Choices = dict[str, dict[int, Tried]]
"""The settings of one method in one scenario: a run for each seed."""
Found = dict[tuple[str, Scenario], Choices]
_HELD_OUT = "config.data.validation_fraction"


@dataclass(frozen=True)
class CellRuns:
    """The runs behind one cell, a method in a scenario: ``seeds`` maps each seed of a finished run to its id."""

    method: Method
    scenario: Scenario
    seeds: dict[int, str] = field(default_factory=dict)
    num_diverged: int = 0
    num_settings: int = 1
    rule: Selection = "only"

    @property
    def run_ids(self) -> list[str]:
        return list(self.seeds.values())


def scenario_of(row: Any) -> Scenario:
    """Data set, skew and cohort size of a row of the runs, with the data set's label if the run recorded one."""
    partition = row.get("config.data.partition")
    omega = row.get("config.data.dirichlet_omega")
    if isinstance(partition, str) and partition != "dirichlet":
        skew = partition_text(lambda key: row.get(f"config.data.{key}"))
    else:
        skew = "unknown" if omega is None or pd.isna(omega) else str(float(omega))
    size = row.get("config.cohort_size")
    label = row.get("config.run.data_label")
    return Scenario(
        str(row.get("config.data.name")),
        skew,
        0 if size is None or pd.isna(size) else int(size),
        data_label=label if isinstance(label, str) else "",
    )


def scenarios_of(rows: pd.DataFrame) -> list[Scenario]:
    """The scenario of every row of the runs."""
    columns = [name for name in rows if name in _OF_SCENARIO or str(name).startswith("config.data.")]
    return [scenario_of(row) for row in rows[columns].to_dict("records")]


_OF_SCENARIO = ("config.cohort_size", "config.run.data_label")
"""Columns that ``scenario_of`` reads besides the data's."""


def panel_of(row: Any, columns: Iterable[str]) -> tuple[tuple[object, ...], str]:
    """The sorting key and the title of a row's panel: its scenario, without the parts that one of the columns gives."""
    whole, keys = scenario_of(row), {column.removeprefix("config.") for column in columns}
    rule = [f"data.{key}" for key in parameters(str(row.get("config.data.partition")))]
    has_data, has_size = "data.name" not in keys, "cohort_size" not in keys
    has_skew = not keys & {"data.partition", "data.dirichlet_omega", *rule}
    kept = Scenario(whole.data * has_data, whole.skew * has_skew, whole.cohort_size * has_size, whole.data_label)
    parts = [whole.data_label] * has_data + [whole.skew_label] * has_skew + [f"S={whole.cohort_size}"] * has_size
    return kept.order(), ", ".join(parts)


def cell_runs(runs: Runs, select: Selection = "only") -> list[CellRuns]:
    """The runs of every cell, by method and scenario in the paper's order.

    Runs of one cell may differ in nothing but the seed. When they do, ``only`` refuses, and the other rules of
    ``Selection`` take one of the settings with the most seeds. Raises UserError where a rule cannot be applied.
    """
    ended = runs.runs[runs.runs["status"].isin(ENDED)]
    if ended.empty:
        return []
    _check_present(ended, ("algorithm.name", "seed", "data.name", "cohort_size"))
    ended = with_defaults(ended.sort_values(["config.seed", "started"]))
    measure = "late_accuracy" if select.endswith("_late") else "top_accuracy"
    values = dict(zip(runs.runs["run_id"], per_run(runs, measure)[measure], strict=True))
    if select.startswith("validation"):
        found, kept = _by_held_out_data(ended, values)
    else:
        found = _settings(ended, _telling_columns(ended))
        kept = _at_common_points(found, values) if select.startswith("common") else found
    methods = methods_in(ended)
    cells = []
    for (name, scenario), choices in kept.items():
        if len(choices) > 1 and select == "only":
            ids = [tried.run_id for seeds in choices.values() for tried in seeds.values()]
            raise _ambiguous(name, scenario, ended[ended["run_id"].isin(ids)])
        best = _best(choices, values)
        seeds = {seed: tried.run_id for seed, tried in best.items() if tried.status == RunStatus.FINISHED}
        num_settings = len(found[name, scenario])
        cells.append(CellRuns(methods[name], scenario, seeds, len(best) - len(seeds), num_settings, select))
    return sorted(cells, key=lambda cell: (cell.method.order, cell.scenario.order()))


def _settings(rows: pd.DataFrame, columns: list[str]) -> Found:
    """The settings of every method in every scenario: values of ``columns``."""
    settings, points = _texts(rows, columns), _texts(rows, [name for name in columns if _is_shared(name)])
    names = map(str, rows["config.algorithm.name"])
    runs = map(Tried, rows["run_id"], rows["status"], points)
    found: Found = {}
    for name, scenario, setting, seed, run in zip(
        names, scenarios_of(rows), settings, rows["config.seed"], runs, strict=True
    ):
        found.setdefault((name, scenario), {}).setdefault(setting, {})[int(seed)] = run  # of one seed, the newest
    return found


def is_held_out(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Which runs were evaluated on held-out training data, not on the test set."""
    share = rows.get(_HELD_OUT, pd.Series(0.0, index=rows.index))
    return share.astype(float) > 0


def _by_held_out_data(rows: pd.DataFrame, values: dict[str, float]) -> tuple[Found, Found]:
    """The settings tried on held-out data, and of the runs on the test set those at the best of them.

    A method without runs on the test set at its best setting has none.
    """
    held_out = is_held_out(rows)
    if not held_out.any():
        raise UserError("select: validation needs runs with data.validation_fraction above 0; there are none")
    columns = [name for name in _telling_columns(rows) if name != _HELD_OUT]
    tried, tested = _settings(rows[held_out], columns), _settings(rows[~held_out], columns)
    kept: Found = {}
    for place, choices in tried.items():
        best = _best(choices, values)
        (setting,) = (setting for setting in choices if choices[setting] is best)
        kept[place] = {setting: tested.get(place, {}).get(setting, {})}
    return tried, kept


def _texts(rows: pd.DataFrame, columns: list[str]) -> list[str]:
    """The values of some columns of every row, as one text."""
    return ["\n".join(map(str, values)) for values in rows[columns].astype(object).to_numpy()]


def _is_shared(column: str) -> bool:
    """Whether a key has a meaning for every method."""
    return not column.startswith("config.algorithm.")


def _best(choices: Choices, values: dict[str, float]) -> dict[int, Tried]:
    """The setting with the highest mean among those with the most seeds."""
    return max((choices[setting] for setting in sorted(choices)), key=lambda runs: (len(runs), _mean(runs, values)))


def _mean(runs: dict[int, Tried], values: dict[str, float]) -> float:
    known = [value for run in runs.values() if math.isfinite(value := values[run.run_id])]
    return sum(known) / len(known) if known else -np.inf


def _at_common_points(found: Found, values: dict[str, float]) -> Found:
    """For every scenario the settings at one point (values of the keys that all methods have): the best on average."""
    kept: Found = {}
    for scenario in {scenario for _, scenario in found}:
        by_method = {name: choices for (name, other), choices in found.items() if other == scenario}
        at = {name: _by_point(choices) for name, choices in by_method.items()}
        points = set.intersection(*(set(points) for points in at.values()))
        if not points:
            raise UserError(
                f"no setting of {scenario.label} is common to {', '.join(sorted(by_method))}: use select: best"
            )
        means = {point: np.mean([_mean(_best(at[name][point], values), values) for name in at]) for point in points}
        point = max(sorted(means), key=lambda point: float(means[point]))
        kept |= {(name, scenario): at[name][point] for name in at}
    return kept


def _by_point(choices: Choices) -> dict[str, Choices]:
    points: dict[str, Choices] = {}
    for setting, runs in choices.items():
        points.setdefault(next(iter(runs.values())).point, {})[setting] = runs
    return points


def with_defaults(rows: pd.DataFrame) -> pd.DataFrame:
    """Give runs from before an option existed its default, which they were made with, as their run ids do."""
    filled = {}
    for key, option in known_keys().items():
        column, default = rows.get(f"config.{key}"), default_of(option)
        if column is not None and default is not None and column.isna().any():
            value = json.dumps(default) if isinstance(default, list | dict) else default
            filled[f"config.{key}"] = [value if pd.isna(found) else found for found in column]
    return rows.assign(**filled)


def _check_present(rows: pd.DataFrame, names: tuple[str, ...]) -> None:
    for name in names:
        known = rows[f"config.{name}"].notna() if f"config.{name}" in rows else pd.Series(False, index=rows.index)
        if not known.all():
            run_id = rows.loc[~known, "run_id"].iloc[0]
            raise UserError(f"run {run_id} has no {name} in its configuration; leave it out with where")


def _identity_columns(rows: pd.DataFrame) -> list[str]:
    """Configuration keys that say which experiment a run is, without the seed and what follows from the run itself."""
    aside = {key for key, option in known_keys().items() if not enters_identity(option)}
    aside |= {"seed", CASE, *PLACEMENT_FIELDS}
    names = [name for name in rows.columns if name.startswith("config.") and not name.startswith("config.run.")]
    return [name for name in names if name.removeprefix("config.") not in aside]


def _telling_columns(rows: pd.DataFrame) -> list[str]:
    """Those of the columns that are not the same in all rows: few of many, which tell all settings apart."""
    return [name for name in _identity_columns(rows) if rows[name].nunique(dropna=False) > 1]


def _ambiguous(algorithm: str, scenario: Scenario, rows: pd.DataFrame) -> UserError:
    varying = varying_keys(rows)
    shown = "; ".join(f"{key} is {' or '.join(values)}" for key, values in varying.items())
    return UserError(
        f"{algorithm} on {scenario.label} has runs that differ in more than the seed ({shown}); "
        "narrow them with where, or set select to best"
    )


def varying_keys(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Configuration keys, other than the seed, with more than one value among ``rows``; absent ones are defaults."""
    return _varying(with_defaults(rows)) if _varying(rows) else {}


def _varying(rows: pd.DataFrame) -> dict[str, list[str]]:
    values = {name.removeprefix("config."): sorted(set(map(str, rows[name]))) for name in _identity_columns(rows)}
    return {name: found for name, found in values.items() if len(found) > 1}


def varying_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """The configuration keys that vary, others left out: what ``varying_keys`` finds among some of the rows is here."""
    return rows[[f"config.{name}" for name in _varying(rows)]]
