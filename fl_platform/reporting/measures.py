"""Numbers of a run."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from fl_platform.config.targets import Target
from fl_platform.errors import UserError
from fl_platform.reporting.statistics import Numbers
from fl_platform.reporting.worker_curves import late_forgetting
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs

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
    "late_accuracy": Measure("Test accuracy, mean of the last tenth of the rounds (%)", 100, True),
    "area": Measure("Test accuracy averaged over rounds (%)", 100, True),
    "forgetting": Measure("Forgetting at the last round (points)", 100, False),
    "late_forgetting": Measure("Forgetting by class, mean of the last tenth of the rounds (points)", 100, False),
    "worker_forgetting": Measure("Forgetting of workers, mean of the last tenth of the rounds (points)", 100, False),
    "worker_accuracy": Measure("Mean over workers on their own data, at the end (%)", 100, True),
    "tuned_accuracy": Measure("The same after fine-tuning (%)", 100, True),
    "worst_workers": Measure("Worst tenth of the workers at the end (%)", 100, True),
    "rounds": Measure("Rounds", 1, False, 0),
    "total_bytes": Measure("Bytes communicated", 1, False, 0),
    "total_seconds": Measure("Seconds", 1, False, 1),
}


def is_share(metric: str) -> bool:
    """Whether a metric is a share of one, which is printed in per cent: accuracies, F1, errors and forgetting."""
    return metric in (metrics.FORGETTING, metrics.WORKER_FORGETTING, metrics.MACRO_F1, metrics.CALIBRATION_ERROR) or (
        "accuracy" in metric and not metric.endswith("_round")
    )


def per_run(runs: Runs, *names: str) -> pd.DataFrame:
    """These measures (default: all) of every run, made from its rounds; index run_id, NaN where nothing was logged."""
    index = pd.Index(runs.runs["run_id"], name="run_id")
    values = pd.DataFrame(index=index, columns=list(names or MEASURES), dtype=float)
    needed = {metrics.ROUND, *(_METRICS[name] for name in values.columns if name in _METRICS)}
    rounds = runs.history.columns(list(index), needed)
    for name in values.columns:
        if name == "worker_forgetting":
            values[name] = late_forgetting(runs)
        elif (key := _METRICS[name]) in rounds:
            logged = rounds.loc[rounds[key].notna(), list(dict.fromkeys(("run_id", metrics.ROUND, key)))]
            values[name] = _REDUCTIONS.get(name, _last)(logged, key).reindex(range(len(index))).to_numpy()
    return values


_METRICS = {
    "top_accuracy": metrics.TEST_ACCURACY,
    "final_accuracy": metrics.TEST_ACCURACY,
    "late_accuracy": metrics.TEST_ACCURACY,
    "area": metrics.TEST_ACCURACY,
    "forgetting": metrics.FORGETTING,
    "late_forgetting": metrics.FORGETTING,
    "worker_accuracy": metrics.WORKERS_ACCURACY,
    "tuned_accuracy": metrics.fine_tuned(metrics.WORKERS_ACCURACY),
    "worst_workers": metrics.WORST_WORKERS,
    "rounds": metrics.ROUND,
    "total_bytes": metrics.TOTAL_BYTES,
    "total_seconds": metrics.TOTAL_SECONDS,
}
"""What the measures are made of, but for the forgetting of workers, which is made of lists."""


def _last(logged: pd.DataFrame, metric: str) -> "pd.Series[float]":
    return logged.groupby("run_id")[metric].last()


def _largest(logged: pd.DataFrame, metric: str) -> "pd.Series[float]":
    return logged.groupby("run_id")[metric].max()


def _late(logged: pd.DataFrame, metric: str) -> "pd.Series[float]":
    """Mean over the evaluations of the last tenth of each run's rounds; the last one is always among them."""
    last = logged.groupby("run_id")[metrics.ROUND].transform("max")
    return logged[logged[metrics.ROUND] > 0.9 * last].groupby("run_id")[metric].mean()


def _area(logged: pd.DataFrame, metric: str) -> "pd.Series[float]":
    """Trapezoidal area under each curve, divided by its length in rounds."""
    by_run = logged.groupby("run_id")
    width = by_run[metrics.ROUND].diff()
    height = (logged[metric] + by_run[metric].shift()) / 2
    area = (width * height).groupby(logged["run_id"]).sum()
    length = by_run[metrics.ROUND].last() - by_run[metrics.ROUND].first()
    return (area / length).where(length > 0, by_run[metric].last())


_REDUCTIONS = {
    "top_accuracy": _largest,
    "late_accuracy": _late,
    "area": _area,
    "late_forgetting": _late,
    "rounds": _largest,
}
"""How a measure is made of a metric where it is not the last value."""


def by_round(runs: Runs, keys: Iterable[str], run_ids: Iterable[str]) -> dict[str, pd.DataFrame]:
    """Metrics of some runs as matrices: index round, one column per run with rounds, NaN where it was not logged.

    The matrix of a metric that no run has is empty. Raises UserError for a metric that is not one number a round, such
    as the accuracies of each worker.
    """
    wanted = set(run_ids)
    columns = [run_id for run_id, table in runs.history.tables.items() if run_id in wanted and len(table)]
    tables = dict.fromkeys(keys, pd.DataFrame())
    logged = runs.history.columns(columns, {metrics.ROUND, *tables})
    rows, rounds = pd.factorize(logged[metrics.ROUND].to_numpy(), sort=True)
    for key in filter(logged.columns.__contains__, tables):
        if key == metrics.ROUND or not is_numeric_dtype(logged[key]):
            raise UserError(f"metric={key} is not allowed; it must be a metric with one number a round")
        values = np.full((len(rounds), len(columns)), np.nan)
        values[rows, logged["run_id"]] = logged[key].to_numpy()
        tables[key] = pd.DataFrame(values, index=rounds, columns=columns)
    return tables


def crossing(curve: Numbers, rounds: Any, target: Target) -> float:
    """The first round whose value reaches ``target``; NaN if there is none (a value that is not known does not)."""
    side = -1 if target.is_better_smaller else 1
    reached = np.flatnonzero(side * curve >= side * target.value - _ROUNDING)
    return float(rounds[reached[0]]) if len(reached) else float("nan")
