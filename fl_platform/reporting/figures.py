"""Curves over rounds with seed bands: by method, as the paper groups them, or by any configuration key."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fl_platform.errors import UserError, unknown_name
from fl_platform.paper.methods import FURTHER_GROUPS, GROUPINGS, Group, Method, Style
from fl_platform.paper.scenarios import Scenario
from fl_platform.reporting import canvas
from fl_platform.reporting.ablations import panel_groups, short, value_text
from fl_platform.reporting.curves import Seed, average
from fl_platform.reporting.measures import Selection, by_round, cell_runs, is_share
from fl_platform.reporting.styles import sequence_style
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs, config_column

LABELS = {
    metrics.TEST_ACCURACY: "Test accuracy (%)",
    metrics.FORGETTING: "Forgetting (points)",
    metrics.TEST_LOSS: "Test loss",
    metrics.TRAIN_LOSS: "Training loss",
    metrics.UPDATE_NORM: "Norm of the update",
    metrics.QP_WORKER_ACTIVE: "Active anchors, worker QP",
    metrics.QP_SERVER_ACTIVE: "Active anchors, server QP",
    metrics.QP_WORKER_RATIO: "Norm kept by the worker QP",
    metrics.QP_SERVER_RATIO: "Norm kept by the server QP",
}
QP_METRICS = (metrics.QP_WORKER_ACTIVE, metrics.QP_WORKER_RATIO, metrics.QP_SERVER_ACTIVE, metrics.QP_SERVER_RATIO)


@dataclass(frozen=True)
class Line:
    """One line of a panel: the runs it averages and how it is drawn."""

    label: str
    run_ids: tuple[str, ...]
    style: Style


def accuracy_curves(
    runs: Runs, grouping: str, metric: str = metrics.TEST_ACCURACY, smooth: int = 1, select: Selection = "only"
) -> Figure:
    """One panel per scenario; the methods of one grouping (worker, server, both, gradma, all) with seed bands.

    Methods that are not of the paper are in all, and with FedAvg in the grouping named as their group: server
    optimiser, worker correction, personalised, robust, private, compressed, reference, plugin.
    """
    known = [*GROUPINGS, *FURTHER_GROUPS, "all"]
    if grouping not in known:
        raise unknown_name("grouping", grouping, known)
    panels: dict[Scenario, list[Line]] = {}
    for cell in cell_runs(runs, select):
        if cell.seeds and _is_in(cell.method, grouping):
            panels.setdefault(cell.scenario, []).append(_method_line(cell.method, cell.run_ids))
    ordered = {scenario.label: panels[scenario] for scenario in sorted(panels, key=Scenario.order)}
    return _curve_figure(runs, ordered, [metric], smooth)


def _is_in(method: Method, grouping: str) -> bool:
    if grouping in GROUPINGS:
        return method.name in GROUPINGS[grouping]
    return grouping == "all" or method.group in (Group.BASELINE, grouping)


def _method_line(method: Method, run_ids: Sequence[str]) -> Line:
    return Line(method.label, tuple(run_ids), method.style)


def key_curves(runs: Runs, key: str, metric: str = metrics.TEST_ACCURACY, smooth: int = 1) -> Figure:
    """One panel per method and scenario; one line per value of a configuration key, such as the memory size."""
    groups = panel_groups(runs.finished().runs, [config_column(runs, key, "key")])
    values = sorted(
        {setting[0] for settings in groups.values() for setting in settings},
        key=lambda value: (str(type(value)), value),
    )
    panels = {}
    for title, settings in groups.items():
        lines = []
        for (value,), rows in settings.items():
            style = sequence_style(values.index(value))
            lines.append(Line(f"{short(key)}={value_text(value)}", tuple(rows["run_id"]), style))
        panels[title] = lines
    return _curve_figure(runs, panels, [metric], smooth)


def qp_activity(runs: Runs, smooth: int = 10, select: Selection = "only") -> Figure:
    """Active anchors and kept norm of both QPs over rounds: a row of panels per scenario."""
    panels: dict[str, list[Line]] = {}
    for cell in cell_runs(runs, select):
        if cell.seeds and _is_in(cell.method, "gradma"):
            panels.setdefault(cell.scenario.label, []).append(_method_line(cell.method, cell.run_ids))
    return _curve_figure(runs, panels, [key for key in QP_METRICS if key in runs.rounds], smooth)


def forgetting_curves(runs: Runs, grouping: str = "all", smooth: int = 1, select: Selection = "only") -> Figure:
    """Accuracy lost since each class's best round, averaged over classes; otherwise like ``curves``."""
    return accuracy_curves(runs, grouping, metrics.FORGETTING, smooth, select)


def _curve_figure(runs: Runs, panels: dict[str, list[Line]], metrics: list[str], smooth: int) -> Figure:
    if not panels or not metrics or not set(metrics) <= set(runs.rounds.columns):
        raise UserError(f"no finished run has what this figure shows ({', '.join(metrics) or 'qp/*'})")
    titles = [(title, metric) for title in panels for metric in metrics]
    columns = len(metrics) if len(metrics) > 1 else None
    with mpl.rc_context(canvas.STYLE):
        figure, axes = canvas.panels(len(titles), columns)
        tables = {metric: by_round(runs, metric) for metric in metrics}
        for axis, (title, metric) in zip(axes, titles, strict=True):
            for line in panels[title]:
                _draw(axis, line, tables[metric], 100 if is_share(metric) else 1, smooth)
            axis.set_title(canvas.label(title), fontsize=9)
            axis.set_xlabel("Round")
            axis.set_ylabel(canvas.label(LABELS.get(metric, f"{metric} (%)" if is_share(metric) else metric)))
            axis.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        canvas.legend(figure, axes)
    return figure


def _draw(axis: Axes, line: Line, table: pd.DataFrame, scale: float, smooth: int) -> None:
    """The mean over seeds, and the band where there is more than one."""
    rounds = table.index.to_numpy(dtype=float)
    seeds = [Seed(rounds, table[run_id].to_numpy() * scale, rounds) for run_id in line.run_ids if run_id in table]
    curve = average(seeds, smooth, most=100 if scale == 100 else np.inf)
    if not len(curve.x):
        return
    style = line.style
    axis.plot(
        curve.x,
        curve.mean,
        color=style.color,
        linestyle=style.dashes,
        marker=style.marker,
        markevery=max(1, len(curve.x) // 8),
        markersize=3.5,
        linewidth=style.width,
        label=canvas.label(line.label),
    )
    if curve.has_band:
        axis.fill_between(curve.x, curve.low, curve.high, color=style.color, alpha=0.15, linewidth=0)
