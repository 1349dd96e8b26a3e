"""Forgetting of workers: what the global model has lost on a worker's own data since its best round.

With a_i(t) the accuracy on worker i's samples after round t, F_i(t) = max_{s <= t} a_i(s) - a_i(t): the measure of
continual learning (Chaudhry et al. 2018, https://arxiv.org/abs/1801.10112) with a worker in place of a task. The best
round may be the current one, so it is never negative, as for classes (``test/forgetting``). A worker's absence is the
number of rounds since it last took part; before it has, it is in no group.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fl_platform.reporting.statistics import Numbers
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs


@dataclass(frozen=True)
class WorkerCurves:
    """A run's evaluations of each worker: rounds (E), and matrices (E, N); absence is NaN before a first round."""

    rounds: Numbers
    accuracy: Numbers
    forgetting: Numbers
    absence: Numbers


def worker_curves(runs: Runs) -> dict[str, WorkerCurves]:
    """The curves of every run that logged the accuracy of each worker, by run id."""
    return {
        run_id: _curves(table)
        for run_id, table in runs.history.tables.items()
        if {metrics.EACH_WORKER, metrics.COHORT} <= set(table.column_names)
        and table[metrics.EACH_WORKER].null_count < len(table)
    }


def _curves(table: pa.Table) -> WorkerCurves:
    is_scored = table[metrics.EACH_WORKER].is_valid().to_numpy()
    accuracy = _flat(table[metrics.EACH_WORKER]).reshape(is_scored.sum(), -1)
    rounds = table[metrics.ROUND].to_numpy().astype(np.float64)
    ends = np.cumsum(pc.list_value_length(table[metrics.COHORT]).to_numpy())
    cohorts = np.split(_flat(table[metrics.COHORT]).astype(np.int64), ends[:-1])
    last, absence = np.full(accuracy.shape[1], np.nan), []
    for number, cohort, scored in zip(rounds, cohorts, is_scored, strict=True):
        last[cohort] = number
        if scored:
            absence.append(number - last)
    best = np.fmax.accumulate(accuracy, axis=0)
    return WorkerCurves(rounds[is_scored], accuracy, best - accuracy, np.array(absence))


def _flat(lists: pa.ChunkedArray) -> Numbers:
    """The numbers of all lists of a column, one list after the other; NaN in place of null."""
    return np.asarray(pc.list_flatten(lists).to_numpy(), dtype=np.float64)


def late_forgetting(runs: Runs) -> "pd.Series[float]":
    """Mean of F_i(t) over workers and the evaluations of the last tenth of the rounds, by run id."""
    found = {
        run_id: float(np.nanmean(curves.forgetting[curves.rounds > 0.9 * curves.rounds[-1]]))
        for run_id, curves in worker_curves(runs).items()
    }
    return pd.Series(found, dtype=float)
