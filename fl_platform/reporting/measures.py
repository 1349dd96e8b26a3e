"""Numbers of a run."""

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


def per_run(runs: Runs) -> pd.DataFrame:
    """Every measure of every run, recomputed from its rounds; index run_id, NaN where nothing was logged."""
    names = pd.Index(runs.runs["run_id"], name="run_id")
    codes, present = pd.factorize(runs.rounds["run_id"])
    rounds = runs.rounds.assign(run_id=names.get_indexer(present)[codes])  # grouped by number, not by text every time
    values = pd.DataFrame(index=range(len(names)), columns=list(MEASURES), dtype=float)
    values["rounds"] = rounds.groupby("run_id")[metrics.ROUND].max()
    for measure, key in (
        ("total_bytes", metrics.TOTAL_BYTES),
        ("total_seconds", metrics.TOTAL_SECONDS),
        ("forgetting", metrics.FORGETTING),
        ("worker_accuracy", metrics.WORKERS_ACCURACY),
        ("tuned_accuracy", metrics.fine_tuned(metrics.WORKERS_ACCURACY)),
        ("worst_workers", metrics.WORST_WORKERS),
    ):
        if key in rounds:
            values[measure] = rounds.groupby("run_id")[key].last()
    if metrics.TEST_ACCURACY in rounds:
        evaluated = rounds.loc[rounds[metrics.TEST_ACCURACY].notna(), ["run_id", metrics.ROUND, metrics.TEST_ACCURACY]]
        accuracy = evaluated.groupby("run_id")[metrics.TEST_ACCURACY]
        values["top_accuracy"], values["final_accuracy"] = accuracy.max(), accuracy.last()
        values["late_accuracy"] = _late(evaluated, metrics.TEST_ACCURACY)
        values["area"] = _areas(evaluated)
    if metrics.FORGETTING in rounds:
        values["late_forgetting"] = _late(rounds[rounds[metrics.FORGETTING].notna()], metrics.FORGETTING)
    values.index = names
    values["worker_forgetting"] = late_forgetting(runs)
    return values


def _late(evaluated: pd.DataFrame, metric: str) -> "pd.Series[float]":
    """Mean over the evaluations of the last tenth of each run's rounds; the last one is always among them."""
    last = evaluated.groupby("run_id")[metrics.ROUND].transform("max")
    return evaluated[evaluated[metrics.ROUND] > 0.9 * last].groupby("run_id")[metric].mean()


def _areas(evaluated: pd.DataFrame) -> "pd.Series[float]":
    """Trapezoidal area under each accuracy curve, divided by its length in rounds."""
    by_run = evaluated.groupby("run_id")
    width = by_run[metrics.ROUND].diff()
    height = (evaluated[metrics.TEST_ACCURACY] + by_run[metrics.TEST_ACCURACY].shift()) / 2
    area = (width * height).groupby(evaluated["run_id"]).sum()
    length = by_run[metrics.ROUND].last() - by_run[metrics.ROUND].first()
    return (area / length).where(length > 0, by_run[metrics.TEST_ACCURACY].last())


def by_round(runs: Runs, key: str) -> pd.DataFrame:
    """A metric as a matrix: index round, one column per run, NaN where it was not logged.

    Raises UserError for a metric that is not one number a round, such as the accuracies of each worker.
    """
    if key not in runs.rounds:
        return pd.DataFrame()
    if key == metrics.ROUND or not is_numeric_dtype(runs.rounds[key]):
        raise UserError(f"metric={key} is not allowed; it must be a metric with one number a round")
    return runs.rounds.pivot(index=metrics.ROUND, columns="run_id", values=key)


def crossing(curve: Numbers, rounds: Any, target: Target) -> float:
    """The first round whose value reaches ``target``; NaN if there is none (a value that is not known does not)."""
    side = -1 if target.is_better_smaller else 1
    reached = np.flatnonzero(side * curve >= side * target.value - _ROUNDING)
    return float(rounds[reached[0]]) if len(reached) else float("nan")
