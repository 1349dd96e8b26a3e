"""Forgetting of workers as tables and figures, also by how long they were absent; worker_curves.py defines it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_platform.errors import UserError
from fl_platform.paper.methods import Method
from fl_platform.reporting import canvas
from fl_platform.reporting.cells import CellRuns, cell_runs
from fl_platform.reporting.layout import MISSING, Cell, Row, Table
from fl_platform.reporting.panel_text import axis_name, set_ticks, share_labels
from fl_platform.reporting.selection import Selection
from fl_platform.reporting.styles import distinct
from fl_platform.reporting.tables import run_notes
from fl_platform.reporting.worker_curves import WorkerCurves, worker_curves
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs

STARTS = (0, 1, 5, 10, 20, 40)
"""First rounds of the groups by absence: 0 is a worker of this round's cohort, the last group has no end."""
GROUPS = ("0", "1-4", "5-9", "10-19", "20-39", "40+")
_NEEDS = (
    "no finished run logged the accuracy of each worker; run with evaluation.workers=true evaluation.each_worker=true"
)


def with_worker_forgetting(runs: Runs) -> Runs:
    """The runs with a metric more, the mean of F_i(t) over workers; UserError where no run has what it is made of."""
    found = {}
    for run_id, curves in worker_curves(runs).items():
        rounds = runs.history.tables[run_id][metrics.ROUND].to_numpy()
        values = np.full(len(rounds), np.nan)
        values[np.isin(rounds, curves.rounds)] = np.nanmean(curves.forgetting, axis=1)
        found[run_id] = pa.array(values)
    if not found:
        raise UserError(_NEEDS)
    return replace(runs, history=runs.history.with_column(metrics.WORKER_FORGETTING, found))


def absence_table(runs: Runs, last: float = 0.5, select: Selection = "only") -> Table:
    """Accuracy of workers on their own data and their forgetting by how long they were absent, over the last rounds."""
    numbers, cells = _by_absence(runs, last, select)
    names = ("accuracy", "all", *GROUPS)
    rows: dict[str, list[Row]] = {}
    for cell in sorted(cells, key=lambda cell: (cell.scenario.order(), cell.method.order)):
        own = numbers[(numbers["algorithm"] == cell.method.name) & (numbers["scenario"] == cell.scenario.label)]
        texts = [_text(own.loc[own["absence"] == name, "value"].to_numpy()) for name in names]
        label = f"{cell.scenario.label}: {cell.method.label}"
        rows.setdefault(cell.scenario.label, []).append(Row(label, tuple(map(Cell, texts))))
    seeds = sorted(numbers["seed"].unique().tolist())
    notes = (
        f"Means over workers and over the evaluations of the last {last:.0%} of the rounds, then mean±std over seeds "
        f"{', '.join(map(str, seeds))} (ddof=1). Forgetting of a worker, in points: its best accuracy so far less the "
        "current one. Groups: rounds since the worker last took part; before its first round it is in none.",
    )
    header = ((("accuracy (%)", 1), ("forgetting", 1), *((f"absent {name}", 1) for name in GROUPS)),)
    title = "Forgetting of workers by absence"
    return Table(title, header, tuple(map(tuple, rows.values())), (*notes, *run_notes(runs, cells)), numbers, "Runs")


def absence_figure(runs: Runs, last: float = 0.5, select: Selection = "only") -> Figure:
    """Forgetting of workers over how long they were absent; one panel per scenario, whiskers are one deviation."""
    numbers, cells = _by_absence(runs, last, select)
    methods = distinct(cell.method for cell in cells)
    scenarios = sorted({cell.scenario for cell in cells}, key=lambda scenario: scenario.order())
    with canvas.drawing():
        figure, axes = canvas.panels(len(scenarios))
        for axis, scenario in zip(axes, scenarios, strict=True):
            own = numbers[numbers["scenario"] == scenario.label]
            shown = [methods[cell.method.name] for cell in cells if cell.scenario == scenario]
            for place, method in enumerate(shown):
                shift = 0.2 * ((place + 0.5) / len(shown) - 0.5)
                _draw(axis, method, own[own["algorithm"] == method.name], shift)
            set_ticks(figure, axis, GROUPS)
            axis.set_ylim(bottom=0)
            axis.set_title(canvas.label(scenario.label))
            axis.set_xlabel("Rounds since the worker took part")
            axis.set_ylabel(axis_name(figure, "Forgetting of workers (points)"))
        share_labels(figure, axes)
        counts = numbers.groupby(["algorithm", "scenario"])["seed"].nunique()
        canvas.legend(figure, axes, f"Mean ± std over seeds, n = {counts.max()}" if counts.max() > 1 else "One seed")
    return figure


def _draw(axis: Axes, method: Method, numbers: pd.DataFrame, shift: float) -> None:
    by_group = numbers.groupby("absence")["value"]
    means, spreads = by_group.mean().reindex(GROUPS), by_group.std(ddof=1).reindex(GROUPS)
    style, wide = method.style, canvas.look().line_scale
    axis.errorbar(
        np.arange(len(GROUPS)) + shift,
        means.to_numpy(),
        yerr=np.nan_to_num(spreads.to_numpy()),
        color=style.color,
        linestyle=style.dashes,
        marker=style.marker,
        markersize=3.5 * wide,
        linewidth=style.width * wide,
        elinewidth=0.8,
        capsize=2,
        label=canvas.label(method.label),
    )


def _by_absence(runs: Runs, last: float, select: Selection) -> tuple[pd.DataFrame, list[CellRuns]]:
    """A row per cell, seed and group of absence, also of all groups together and of the accuracy; and the cells."""
    if not 0 < last <= 1:
        raise UserError(f"last={last} is not allowed; it must be > 0 and <= 1, the share of the rounds that count")
    curves = worker_curves(runs)
    cells = [cell for cell in cell_runs(runs, select) if any(run_id in curves for run_id in cell.run_ids)]
    if not cells:
        raise UserError(_NEEDS)
    rows = []
    for cell in cells:
        for seed, run_id in cell.seeds.items():
            head = {"algorithm": cell.method.name, "scenario": cell.scenario.label, "seed": seed}
            found = _groups(curves[run_id], last) if run_id in curves else {}
            rows += [head | {"absence": name, "value": value} for name, value in found.items()]
    return pd.DataFrame(rows), cells


def _groups(curves: WorkerCurves, last: float) -> dict[str, float]:
    """Means in per cent over workers and the last share of the rounds; NaN where a group has nobody."""
    chosen = curves.rounds > (1 - last) * curves.rounds[-1]
    forgetting, absence = curves.forgetting[chosen], curves.absence[chosen]
    found = {"accuracy": curves.accuracy[chosen], "all": forgetting}
    for name, start, end in zip(GROUPS, STARTS, (*STARTS[1:], np.inf), strict=True):
        found[name] = forgetting[(absence >= start) & (absence < end)]
    return {name: 100 * float(np.nanmean(v)) if np.isfinite(v).any() else np.nan for name, v in found.items()}


def _text(values: "np.ndarray[Any, np.dtype[np.float64]]") -> str:
    known = values[np.isfinite(values)]
    if not len(known):
        return MISSING
    return f"{known.mean():.1f}" + (f"±{known.std(ddof=1):.1f}" if len(known) > 1 else "")
