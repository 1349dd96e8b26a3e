"""Curves over rounds with seed bands: by algorithm, as the paper groups them, or by any configuration key."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fl_platform.errors import UserError, unknown_name
from fl_platform.paper.style import (
    GROUPINGS,
    SEQUENCE,
    SEQUENCE_DASHES,
    AlgorithmStyle,
    Dashes,
    Scenario,
    algorithm_style,
    normal,
)
from fl_platform.reporting import canvas
from fl_platform.reporting.ablations import panel_groups, short, value_text
from fl_platform.reporting.measures import Selection, cell_runs, curves
from fl_platform.reporting.statistics import band
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs, config_column

METRICS = {
    metrics.TEST_ACCURACY: ("Test accuracy (%)", 100),
    metrics.FORGETTING: ("Forgetting (points)", 100),
    metrics.TEST_LOSS: ("Test loss", 1),
    metrics.TRAIN_LOSS: ("Training loss", 1),
    metrics.UPDATE_NORM: ("Norm of the update", 1),
    metrics.QP_WORKER_ACTIVE: ("Active anchors, worker QP", 1),
    metrics.QP_SERVER_ACTIVE: ("Active anchors, server QP", 1),
    metrics.QP_WORKER_RATIO: ("Norm kept by the worker QP", 1),
    metrics.QP_SERVER_RATIO: ("Norm kept by the server QP", 1),
}
QP_METRICS = (metrics.QP_WORKER_ACTIVE, metrics.QP_WORKER_RATIO, metrics.QP_SERVER_ACTIVE, metrics.QP_SERVER_RATIO)


@dataclass(frozen=True)
class Line:
    """One line of a panel: the runs it averages and how it is drawn."""

    label: str
    run_ids: tuple[str, ...]
    color: str
    dashes: Dashes
    marker: str
    width: float = 1.4


def accuracy_curves(
    runs: Runs, grouping: str, metric: str = metrics.TEST_ACCURACY, smooth: int = 1, select: Selection = "only"
) -> Figure:
    """One panel per scenario; the algorithms of one grouping (worker, server, both, gradma, all) with seed bands."""
    if grouping != "all" and grouping not in GROUPINGS:
        raise unknown_name("grouping", grouping, [*GROUPINGS, "all"])
    panels: dict[Scenario, list[Line]] = {}
    for cell in cell_runs(runs, select):
        style = algorithm_style(cell.algorithm)
        if cell.seeds and (grouping == "all" or normal(cell.algorithm) in GROUPINGS[grouping]):
            panels.setdefault(cell.scenario, []).append(_algorithm_line(style, cell.run_ids))
    ordered = {scenario.label: panels[scenario] for scenario in sorted(panels, key=Scenario.order)}
    return _curve_figure(runs, ordered, [metric], smooth)


def _algorithm_line(style: AlgorithmStyle, run_ids: Sequence[str]) -> Line:
    width = 2.0 if style.label.startswith("GradMA") else 1.4
    return Line(style.label, tuple(run_ids), style.color, style.dashes, style.marker, width)


def key_curves(runs: Runs, key: str, metric: str = metrics.TEST_ACCURACY, smooth: int = 1) -> Figure:
    """One panel per algorithm and scenario; one line per value of a configuration key, such as the memory size."""
    groups = panel_groups(runs.finished().runs, [config_column(runs, key, "key")])
    values = sorted(
        {setting[0] for settings in groups.values() for setting in settings},
        key=lambda value: (str(type(value)), value),
    )
    panels = {}
    for title, settings in groups.items():
        lines = []
        for (value,), rows in settings.items():
            place = values.index(value)
            color, dashes = SEQUENCE[place % len(SEQUENCE)], SEQUENCE_DASHES[place % len(SEQUENCE_DASHES)]
            lines.append(Line(f"{short(key)}={value_text(value)}", tuple(rows["run_id"]), color, dashes, ""))
        panels[title] = lines
    return _curve_figure(runs, panels, [metric], smooth)


def qp_activity(runs: Runs, smooth: int = 10, select: Selection = "only") -> Figure:
    """Active anchors and kept norm of both QPs over rounds: a row of panels per scenario."""
    panels: dict[str, list[Line]] = {}
    for cell in cell_runs(runs, select):
        if cell.seeds and normal(cell.algorithm) in GROUPINGS["gradma"]:
            panels.setdefault(cell.scenario.label, []).append(
                _algorithm_line(algorithm_style(cell.algorithm), cell.run_ids)
            )
    return _curve_figure(runs, panels, [key for key in QP_METRICS if key in runs.rounds], smooth)


def forgetting_curves(runs: Runs, grouping: str = "all", smooth: int = 1, select: Selection = "only") -> Figure:
    return accuracy_curves(runs, grouping, metrics.FORGETTING, smooth, select)


def _curve_figure(runs: Runs, panels: dict[str, list[Line]], metrics: list[str], smooth: int) -> Figure:
    if not panels or not metrics or not set(metrics) <= set(runs.rounds.columns):
        raise UserError(f"no finished run has what this figure shows ({', '.join(metrics) or 'qp/*'})")
    titles = [(title, metric) for title in panels for metric in metrics]
    columns = len(metrics) if len(metrics) > 1 else None
    with mpl.rc_context(canvas.STYLE):
        figure, axes = canvas.panels(len(titles), columns)
        tables = {metric: curves(runs, metric) for metric in metrics}
        for axis, (title, metric) in zip(axes, titles, strict=True):
            for line in panels[title]:
                _draw(axis, line, tables[metric], METRICS.get(metric, (metric, 1))[1], smooth)
            axis.set_title(canvas.label(title), fontsize=9)
            axis.set_xlabel("Round")
            axis.set_ylabel(canvas.label(METRICS.get(metric, (metric, 1))[0]))
            axis.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        canvas.legend(figure, axes)
    return figure


def _draw(axis: Axes, line: Line, table: pd.DataFrame, scale: float, smooth: int) -> None:
    """Mean over seeds, and a band of one standard deviation (ddof=1) when there is more than one."""
    own = table[[run_id for run_id in line.run_ids if run_id in table]].dropna(how="all") * scale
    if own.empty:
        return
    if smooth > 1:
        own = own.rolling(smooth, min_periods=1).mean()
    rounds, mean = own.index.to_numpy(), own.mean(axis=1).to_numpy()
    spacing = max(1, len(rounds) // 8)
    axis.plot(
        rounds,
        mean,
        color=line.color,
        linestyle=line.dashes,
        marker=line.marker,
        markevery=spacing,
        markersize=3.5,
        linewidth=line.width,
        label=canvas.label(line.label),
    )
    if own.shape[1] > 1:
        spread = own.std(axis=1, ddof=1).to_numpy()
        low, high = band(mean, spread, most=100 if scale == 100 else np.inf)  # percent
        axis.fill_between(rounds, low, high, color=line.color, alpha=0.15, linewidth=0)
