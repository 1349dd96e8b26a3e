"""Numbers of a cell: means and spreads over seeds, and when its curve reaches a target."""

import json
from typing import Any

import numpy as np
import pandas as pd

from fl_platform.config.targets import Target, plain_target
from fl_platform.paper.scenarios import Scenario
from fl_platform.reporting.cells import CellRuns
from fl_platform.reporting.measures import Measure, by_round, crossing
from fl_platform.reporting.statistics import Numbers
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs
from fl_platform.runs.status import RunStatus


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


def cell_crossings(runs: Runs, cells: list[CellRuns], targets: dict[Scenario, Target]) -> pd.DataFrame:
    """One row per cell with a target: the round, bytes and seconds at which the seed-averaged curve reaches it,
    and the rounds at which each seed does."""
    curves = {target.metric: metrics.tested(target.metric) for target in targets.values()}
    costs = {"bytes": metrics.TOTAL_BYTES, "seconds": metrics.TOTAL_SECONDS}
    ids = [run_id for cell in cells for run_id in cell.run_ids]
    tables = by_round(runs, {*curves.values(), *costs.values()}, ids)
    rows = []
    for cell in cells:
        if cell.scenario not in targets:
            continue
        target = targets[cell.scenario]
        curve = tables[curves[target.metric]]
        values, rounds = curve.to_numpy(), curve.index.to_numpy()
        places = {run_id: place for place, run_id in enumerate(curve.columns)}
        own = values[:, [places[run_id] for run_id in cell.run_ids if run_id in places]]
        reached = crossing(own.mean(axis=1), rounds, target) if own.size else float("nan")
        row = _cell_head(cell) | {"target": plain_target(target.text), "n": own.shape[1], "rounds": reached}
        row |= {unit: _cost(tables[key], cell.run_ids, reached) for unit, key in costs.items()}
        each = [
            crossing(values[:, places[run_id]], rounds, target) if run_id in places else np.nan
            for run_id in cell.run_ids
        ]
        rows.append(row | {"rounds_by_seed": by_seed(cell, np.array(each))})
    return pd.DataFrame(rows)


def _cost(table: pd.DataFrame, ids: list[str], reached: float) -> float:
    """The mean over runs of a running total at the round where the target was reached."""
    if np.isnan(reached) or not set(ids) <= set(table.columns):
        return float("nan")
    row = table.to_numpy()[table.index.get_indexer(pd.Index([int(reached)]))[0]]
    return float(row[table.columns.get_indexer(pd.Index(ids))].mean())
