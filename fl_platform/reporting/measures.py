"""Numbers of a run, and of a cell (one algorithm in one scenario over its seeds)."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from fl_platform.config.options import default_of, enters_identity
from fl_platform.config.partitions import partition_text
from fl_platform.config.schema import PLACEMENT_FIELDS, known_keys
from fl_platform.config.targets import Target, plain_target
from fl_platform.errors import UserError
from fl_platform.paper.methods import Method
from fl_platform.paper.scenarios import Scenario
from fl_platform.reporting.statistics import Numbers
from fl_platform.reporting.styles import methods_in
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs
from fl_platform.runs.status import ENDED, RunStatus

Selection = Literal["only", "best"]
_ROUNDING = 1e-12  # a mean of accuracies may fall short of a target it equals by round-off


@dataclass(frozen=True)
class Measure:
    """A number of one run; ``scale`` is applied in tables, where accuracies are per cent."""

    label: str
    scale: float
    is_better_larger: bool
    decimals: int = 2


MEASURES: dict[str, Measure] = {
    "top_accuracy": Measure("Top test accuracy (%)", 100, True),
    "final_accuracy": Measure("Test accuracy of the last round (%)", 100, True),
    "area": Measure("Test accuracy averaged over rounds (%)", 100, True),
    "forgetting": Measure("Forgetting at the last round (points)", 100, False),
    "worst_workers": Measure("Worst tenth of the workers at the end (%)", 100, True),
    "rounds": Measure("Rounds", 1, False, 0),
    "total_bytes": Measure("Bytes communicated", 1, False, 0),
    "total_seconds": Measure("Seconds", 1, False, 1),
}


def is_share(metric: str) -> bool:
    """Whether a metric is a share of one, which is printed in per cent: accuracies, F1, errors and forgetting."""
    return metric in (metrics.FORGETTING, metrics.MACRO_F1, metrics.CALIBRATION_ERROR) or (
        "accuracy" in metric and not metric.endswith("_round")
    )


def per_run(runs: Runs) -> pd.DataFrame:
    """Every measure of every run, recomputed from its rounds; index run_id, NaN where nothing was logged."""
    rounds = runs.rounds
    values = pd.DataFrame(index=pd.Index(runs.runs["run_id"], name="run_id"), columns=list(MEASURES), dtype=float)
    values["rounds"] = rounds.groupby("run_id")[metrics.ROUND].max()
    for measure, key in (
        ("total_bytes", metrics.TOTAL_BYTES),
        ("total_seconds", metrics.TOTAL_SECONDS),
        ("forgetting", metrics.FORGETTING),
        ("worst_workers", metrics.WORST_WORKERS),
    ):
        if key in rounds:
            values[measure] = rounds.groupby("run_id")[key].last()
    if metrics.TEST_ACCURACY in rounds:
        evaluated = rounds.loc[rounds[metrics.TEST_ACCURACY].notna(), ["run_id", metrics.ROUND, metrics.TEST_ACCURACY]]
        accuracy = evaluated.groupby("run_id")[metrics.TEST_ACCURACY]
        values["top_accuracy"], values["final_accuracy"] = accuracy.max(), accuracy.last()
        values["area"] = _areas(evaluated)
    return values


def _areas(evaluated: pd.DataFrame) -> "pd.Series[float]":
    """Trapezoidal area under each accuracy curve, divided by its length in rounds."""
    by_run = evaluated.groupby("run_id")
    width = by_run[metrics.ROUND].diff()
    height = (evaluated[metrics.TEST_ACCURACY] + by_run[metrics.TEST_ACCURACY].shift()) / 2
    area = (width * height).groupby(evaluated["run_id"]).sum()
    length = by_run[metrics.ROUND].last() - by_run[metrics.ROUND].first()
    return (area / length).where(length > 0, by_run[metrics.TEST_ACCURACY].last())


@dataclass(frozen=True)
class CellRuns:
    """The runs behind one cell, a method in a scenario: ``seeds`` maps each seed of a finished run to its id."""

    method: Method
    scenario: Scenario
    seeds: dict[int, str] = field(default_factory=dict)
    num_diverged: int = 0
    num_settings: int = 1

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


def cell_runs(runs: Runs, select: Selection = "only") -> list[CellRuns]:
    """The runs of every cell, by method and scenario in the paper's order.

    Runs of one cell may differ in nothing but the seed. When they do, ``only`` refuses and ``best`` takes the setting
    with the highest mean top accuracy among those with the most seeds.
    """
    ended = runs.runs[runs.runs["status"].isin(ENDED)]
    if ended.empty:
        return []
    _check_present(ended, ("algorithm.name", "seed", "data.name", "cohort_size"))
    ended = with_defaults(ended.sort_values(["config.seed", "started"]))
    settings = ["\n".join(map(str, values)) for values in ended[_identity_columns(ended)].astype(object).to_numpy()]
    top: dict[Any, float] = per_run(runs)["top_accuracy"].to_dict()
    found: dict[tuple[str, Scenario], dict[str, dict[int, Any]]] = {}
    for row, setting in zip(ended.to_dict("records"), settings, strict=True):
        cell = found.setdefault((str(row.get("config.algorithm.name")), scenario_of(row)), {})
        cell.setdefault(setting, {})[int(row["config.seed"])] = row  # of one seed, the newest
    methods = methods_in(ended)
    cells = []
    for (name, scenario), choices in found.items():
        if len(choices) > 1 and select == "only":
            raise _ambiguous(
                name, scenario, pd.DataFrame([row for seeds in choices.values() for row in seeds.values()])
            )
        rows = max(
            (choices[setting] for setting in sorted(choices)), key=lambda rows: (len(rows), _mean_top(rows, top))
        )
        seeds = {seed: row["run_id"] for seed, row in rows.items() if row["status"] == RunStatus.FINISHED}
        cells.append(CellRuns(methods[name], scenario, seeds, len(rows) - len(seeds), len(choices)))
    return sorted(cells, key=lambda cell: (cell.method.order, cell.scenario.order()))


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


def _mean_top(rows: dict[int, Any], top: dict[Any, float]) -> float:
    known = [value for row in rows.values() if np.isfinite(value := top[row["run_id"]])]
    return sum(known) / len(known) if known else -np.inf


def _identity_columns(rows: pd.DataFrame) -> list[str]:
    """Configuration keys that say which experiment a run is, without the seed and what follows from the run itself."""
    aside = {key for key, option in known_keys().items() if not enters_identity(option)} | {"seed", *PLACEMENT_FIELDS}
    names = [name for name in rows.columns if name.startswith("config.") and not name.startswith("config.run.")]
    return [name for name in names if name.removeprefix("config.") not in aside]


def _ambiguous(algorithm: str, scenario: Scenario, rows: pd.DataFrame) -> UserError:
    varying = varying_keys(rows)
    shown = "; ".join(f"{key} is {' or '.join(values)}" for key, values in varying.items())
    return UserError(
        f"{algorithm} on {scenario.label} has runs that differ in more than the seed ({shown}); "
        "narrow them with where, or set select to best"
    )


def varying_keys(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Configuration keys, other than the seed, with more than one value among ``rows``."""
    values = {name.removeprefix("config."): sorted(set(map(str, rows[name]))) for name in _identity_columns(rows)}
    return {name: found for name, found in values.items() if len(found) > 1}


def cell_values(cells: list[CellRuns], values: "pd.Series[float]", measure: Measure) -> pd.DataFrame:
    """One row per cell: n, mean, both standard deviations (scaled as in tables) and the value of each seed."""
    rows = []
    for cell in cells:
        each = np.asarray(values.reindex(cell.run_ids) * measure.scale, dtype=np.float64)
        known = each[np.isfinite(each)]
        rows.append(
            _cell_head(cell)
            | {
                "n": len(known),
                "mean": known.mean() if len(known) else np.nan,
                "std_ddof0": known.std() if len(known) else np.nan,
                "std_ddof1": known.std(ddof=1) if len(known) > 1 else np.nan,
                "by_seed": by_seed(cell, each),
            }
        )
    return pd.DataFrame(rows)


def _cell_head(cell: CellRuns) -> dict[str, Any]:
    return {
        "algorithm": cell.method.name,
        "method": cell.method,
        "scenario": cell.scenario,
        RunStatus.DIVERGED.value: cell.num_diverged,
        "settings": cell.num_settings,
    }


def by_seed(cell: CellRuns, values: Numbers) -> str:
    """The values of the seeds as JSON."""
    pairs = zip(cell.seeds, values, strict=True)
    return json.dumps({str(seed): float(value) if np.isfinite(value) else None for seed, value in pairs})


def by_round(runs: Runs, key: str) -> pd.DataFrame:
    """A metric as a matrix: index round, one column per run, NaN where it was not logged."""
    if key not in runs.rounds:
        return pd.DataFrame()
    return runs.rounds.pivot(index=metrics.ROUND, columns="run_id", values=key)


def cell_crossings(runs: Runs, cells: list[CellRuns], targets: dict[Scenario, Target]) -> pd.DataFrame:
    """One row per cell with a target: the round, bytes and seconds at which the seed-averaged curve reaches it,
    and the rounds at which each seed does."""
    curves = {metric: by_round(runs, metrics.tested(metric)) for metric in {t.metric for t in targets.values()}}
    costs = {"bytes": by_round(runs, metrics.TOTAL_BYTES), "seconds": by_round(runs, metrics.TOTAL_SECONDS)}
    tables = {name: (table.to_numpy(), table.columns, table.index) for name, table in costs.items()}
    rows = []
    for cell in cells:
        if cell.scenario not in targets:
            continue
        target = targets[cell.scenario]
        curve = curves[target.metric]
        values, rounds = curve.to_numpy(), curve.index.to_numpy()
        places = {run_id: place for place, run_id in enumerate(curve.columns)}
        own = values[:, [places[run_id] for run_id in cell.run_ids if run_id in places]]
        reached = crossing(own.mean(axis=1), rounds, target) if own.size else float("nan")
        row = _cell_head(cell) | {"target": plain_target(target.text), "n": own.shape[1], "rounds": reached}
        row |= {unit: _cost(*table, cell.run_ids, reached) for unit, table in tables.items()}
        each = [
            crossing(values[:, places[run_id]], rounds, target) if run_id in places else np.nan
            for run_id in cell.run_ids
        ]
        rows.append(row | {"rounds_by_seed": by_seed(cell, np.array(each))})
    return pd.DataFrame(rows)


def crossing(curve: Numbers, rounds: Any, target: Target) -> float:
    """The first round whose value reaches ``target``; NaN if there is none (a value that is not known does not)."""
    side = -1 if target.is_better_smaller else 1
    reached = np.flatnonzero(side * curve >= side * target.value - _ROUNDING)
    return float(rounds[reached[0]]) if len(reached) else float("nan")


def _cost(values: Numbers, columns: "pd.Index[Any]", index: "pd.Index[Any]", ids: list[str], reached: float) -> float:
    """The mean over runs of a running total at the round where the target was reached."""
    if np.isnan(reached) or not set(ids) <= set(columns):
        return float("nan")
    row = values[index.get_indexer(pd.Index([int(reached)]))[0]]
    return float(row[columns.get_indexer(pd.Index(ids))].mean())
