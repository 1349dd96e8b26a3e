"""Panels of curves over rounds, bytes or seconds: means over seeds with bands, or every seed as a thin line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fl_platform.errors import UserError
from fl_platform.paper.methods import Style
from fl_platform.reporting import canvas
from fl_platform.reporting.cells import is_held_out
from fl_platform.reporting.curves import Curve, Seed, average
from fl_platform.reporting.measures import by_round, is_share
from fl_platform.reporting.panel_text import axis_name, share_labels
from fl_platform.reporting.ranges import Drawn, add_inset, end_of, fit_range, label_ends
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs

LABELS = {
    metrics.TEST_ACCURACY: "Test accuracy (%)",
    metrics.FORGETTING: "Forgetting (points)",
    metrics.WORKER_FORGETTING: "Forgetting of workers (points)",
    metrics.TEST_LOSS: "Test loss",
    metrics.MACRO_F1: "Macro F1 (%)",
    metrics.BALANCED_ACCURACY: "Balanced accuracy (%)",
    metrics.PERPLEXITY: "Test perplexity",
    metrics.CALIBRATION_ERROR: "Expected calibration error (%)",
    metrics.WORKERS_ACCURACY: "Mean accuracy of workers (%)",
    metrics.WORST_WORKERS: "Accuracy of the worst tenth of workers (%)",
    metrics.fine_tuned(metrics.WORKERS_ACCURACY): "Mean accuracy of workers, fine-tuned (%)",
    metrics.EPSILON: "Privacy spent (epsilon)",
    metrics.TRAIN_LOSS: "Training loss",
    metrics.UPDATE_NORM: "Norm of the update",
    metrics.QP_WORKER_ACTIVE: "Active anchors, worker QP",
    metrics.QP_SERVER_ACTIVE: "Active anchors, server QP",
    metrics.QP_WORKER_RATIO: "Norm kept by the worker QP",
    metrics.QP_SERVER_RATIO: "Norm kept by the server QP",
    metrics.QP_WORKER_ERROR: "Worker QP: largest error",
    metrics.QP_WORKER_LENGTH: "Worker QP: longest gradient",
    metrics.QP_SERVER_ERROR: "Server QP: error",
    metrics.QP_SERVER_LENGTH: "Server QP: length of the momentum",
    metrics.WORKERS_LOSS: "Mean loss of workers",
}
AXES = {"rounds": metrics.ROUND, "bytes": metrics.TOTAL_BYTES, "seconds": metrics.TOTAL_SECONDS}
_CROWD = 8  # lines that end close together: too many for one panel
_BYTES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


@dataclass(frozen=True)
class Line:
    """One line of a panel: its label as ``canvas.label`` made it, the runs it averages and how it is drawn."""

    label: str
    run_ids: tuple[str, ...]
    style: Style


@dataclass(frozen=True)
class Chart:
    """What a panel shows: a metric along an axis (rounds, bytes, seconds)."""

    metric: str
    axis: str = "rounds"
    is_held_out: bool = False  # measured on training data that was held out, not on the test set

    @property
    def label(self) -> str:
        """The name of the y axis."""
        known = LABELS.get(self.metric)
        if known and self.is_held_out and known.startswith("Test "):
            return known.replace("Test", "Held-out", 1)
        return known or canvas.label(f"{self.metric} (%)" if is_share(self.metric) else self.metric)


def curve_figure(
    runs: Runs, panels: Mapping[str, Sequence[Line]], charts: Sequence[Chart], smooth: int, *, each_seed: bool = False
) -> canvas.ShownFigure:
    """A row of panels per title and chart, or one panel per title where there is one chart.

    Where the only panel has many lines that end close together and no room for an inset, a second one shows their end.
    Raises UserError where no finished run has what the figure shows.
    """
    if smooth < 1:
        raise UserError(f"smooth={smooth} is not allowed; it must be a whole number >= 1")
    needed = {chart.metric for chart in charts} | {AXES[chart.axis] for chart in charts}
    if not panels or not charts or not needed <= set(runs.history.schema.names):
        shown = ", ".join(sorted({chart.metric for chart in charts})) or "qp/*"
        raise UserError(f"no finished run has what this figure shows ({shown})")
    axes = {AXES[chart.axis] for chart in charts} - {metrics.ROUND}
    drawn = {run_id for lines in panels.values() for line in lines for run_id in line.run_ids}
    if is_held_out(runs.runs[runs.runs["run_id"].isin(drawn)]).all():
        charts = [replace(chart, is_held_out=True) for chart in charts]
    tables = by_round(runs, {chart.metric for chart in charts} | axes, drawn)
    places = [Place(title, chart) for title in panels for chart in charts]
    figure, is_crowded = _figure(panels, places, tables, smooth, each_seed)
    if len(places) == 1 and is_crowded:
        places.append(replace(places[0], is_end=True))
        figure, _ = _figure(panels, places, tables, smooth, each_seed)
    return figure


@dataclass(frozen=True)
class Place:
    """A panel of a figure; ``is_end`` for one that enlarges where the lines end."""

    title: str
    chart: Chart
    is_end: bool = False


def _figure(
    panels: Mapping[str, Sequence[Line]],
    places: Sequence[Place],
    tables: Mapping[str, pd.DataFrame],
    smooth: int,
    each_seed: bool,
) -> tuple[canvas.ShownFigure, bool]:
    """The figure, and whether lines of its last panel end too close together to be told apart."""
    with canvas.drawing() as look:
        charts, is_crowded = {place.chart for place in places}, False
        columns = columns_for(len(charts), look.most_columns) if len(charts) > 1 else None
        figure, axes = canvas.panels(len(places), columns)
        drawn = []
        for axis, place in zip(axes, places, strict=True):
            own = panels[place.title]
            alpha = min(0.15, 0.5 / len(own))  # many bands on each other must not hide the lines
            lines = [_draw(axis, line, tables, place.chart, smooth, None if each_seed else alpha) for line in own]
            drawn.append([line for line in lines if line is not None])
            _finish(axis, place.chart, drawn[-1])
            is_crowded = _show_end(axis, drawn[-1], place.is_end)
            axis.set_title("The end, enlarged" if place.is_end else canvas.label(place.title))
            axis.set_ylabel(axis_name(figure, place.chart.label))
        share_labels(figure, axes)
        height = figure.get_figheight() / figure.num_rows
        note = seeds_note([one.curve for lines in drawn for one in lines], each_seed=each_seed)
        if not each_seed and len(charts) == 1 and label_ends(axes, drawn, height):
            figure.supxlabel(note, fontsize=look.small)
        else:
            canvas.legend(figure, axes, note)
    return figure, is_crowded


def columns_for(count: int, most: int) -> int:
    """The most columns in which so many panels, again and again, lie below each other; ``most`` where none do."""
    fitting = [columns for columns in range(2, most + 1) if count % columns == 0]
    return max(fitting, default=min(count, most))


def seeds_note(curves: Sequence[Curve], *, each_seed: bool = False) -> str:
    """How many seeds lines average, and whether there are bands."""
    counts = [int(curve.n.max()) for curve in curves if len(curve.n)]
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    count = f"n = {high}" if low == high else f"n = {low} to {high}"
    if each_seed:
        return f"Thin: each seed, thick: mean ({count})"
    return f"Mean ± std over seeds, {count}" if high > 1 else "One seed"


def _finish(axis: Axes, chart: Chart, drawn: Sequence[Drawn]) -> None:
    """The range, ticks and name of the axes."""
    fit_range(axis, drawn, metric_is_rising=chart.metric == metrics.TEST_ACCURACY)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=chart.axis == "rounds"))
    axis.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axis.ticklabel_format(axis="y", useOffset=False)
    ends = [float(one.curve.x[-1]) for one in drawn if len(one.curve.x)]
    if chart.axis == "bytes":
        unit, scale = next((pair for pair in _BYTES if max(ends, default=0) >= pair[1]), _BYTES[-1])
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / scale:g}")
        axis.set_xlabel(f"Communication ({unit})")
    else:
        axis.set_xlabel("Round" if chart.axis == "rounds" else "Seconds")
    if ends:
        starts = [float(one.curve.x[0]) for one in drawn if len(one.curve.x)]
        axis.set_xlim(min(starts), max(max(ends), min(starts) + 1e-9) * 1.0)


def _show_end(axis: Axes, drawn: Sequence[Drawn], is_end: bool) -> bool:
    """Enlarge where curves lie on each other, in an inset or, of a panel of the end, as a whole.

    Returns whether many end close together and there was no room for an inset.
    """
    end = end_of(axis, drawn)
    if is_end and end is not None:
        axis.set_xlim(*end.x)
        axis.set_ylim(*end.y)
        return False
    return add_inset(axis, drawn) is None and end is not None and end.count >= _CROWD


def _draw(
    axis: Axes, line: Line, tables: Mapping[str, pd.DataFrame], chart: Chart, smooth: int, band: float | None
) -> Drawn | None:
    """The mean over seeds with its ``band`` (opacity) where there are several; None: each seed below the mean."""
    table = tables[chart.metric]
    scale = 100 if is_share(chart.metric) else 1
    rounds = table.index.to_numpy(dtype=float)
    seeds = []
    for run_id in (one for one in line.run_ids if one in table):
        along = rounds if chart.axis == "rounds" else tables[AXES[chart.axis]][run_id].to_numpy(dtype=float)
        seeds.append(Seed(rounds, table[run_id].to_numpy() * scale, along))
    most = 100 if scale == 100 else np.inf
    curve = average(seeds, smooth, most=most)
    if not len(curve.x):
        return None
    style, wide = line.style, canvas.look().line_scale
    single = tuple(average([seed], smooth, most=most) for seed in seeds) if band is None else ()
    if band is None:
        for alone in single:
            axis.plot(alone.x, alone.mean, color=style.color, linewidth=0.5 * wide, alpha=0.6)
    axis.plot(
        curve.x,
        curve.mean,
        color=style.color,
        linestyle=style.dashes,
        marker=style.marker,
        markevery=max(1, len(curve.x) // 8),
        markersize=3.5 * wide,
        linewidth=style.width * wide,
        label=line.label,
    )
    if curve.has_band and band is not None:
        axis.fill_between(curve.x, curve.low, curve.high, color=style.color, alpha=band, linewidth=0)
    return Drawn(line.label, style.color, curve, single, style.dashes)
