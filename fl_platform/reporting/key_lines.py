"""Lines of a measure over the values of a numeric configuration key, such as the share of faulty workers."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fl_platform.errors import UserError
from fl_platform.paper.methods import Method
from fl_platform.reporting import canvas
from fl_platform.reporting.ablations import count_note, measured, value_text
from fl_platform.reporting.cells import panel_of, varying_keys
from fl_platform.reporting.panel_text import axis_name, share_labels
from fl_platform.reporting.styles import methods_in
from fl_platform.runs.frames import Runs, config_column

_MOST_TICKS = 8
_APART = 0.3  # of the smallest gap between two values: how far the points at one value are set apart


def key_lines(runs: Runs, key: str, value: str = "top_accuracy", panel: str | None = None) -> Figure:
    """A measure over the values of one numeric key, a line per method: accuracy over the share of faulty workers.

    One panel per scenario, and per value of ``panel`` where it is given. Bars are one standard deviation (ddof=1);
    the points at one value are set a little apart, so that these can be told apart.
    """
    measure, frame = measured(runs, value)
    columns = [config_column(runs, key, "key"), *([config_column(runs, panel, "panel")] if panel else [])]
    places: dict[tuple[Any, ...], dict[tuple[Any, Method], dict[float, list[int]]]] = {}
    present = frame[frame[columns].notna().all(axis=1)]
    values = pd.to_numeric(present[columns[0]], errors="coerce")
    if values.isna().any():
        text = present[columns[0]][values.isna()].iloc[0]
        raise UserError(f"key={key} is {text} in some runs; key_lines draws over numbers, bars over any values")
    methods = methods_in(present)
    for place, (_, row) in enumerate(present.iterrows()):
        method = methods[str(row["config.algorithm.name"])]
        title = (*panel_of(row, columns[:1]), *(_panel_title(panel, row[column]) for column in columns[1:]))
        points = places.setdefault(title, {}).setdefault((method.order, method), {})
        points.setdefault(float(row[columns[0]]), []).append(place)
    if not places:
        raise UserError(f"no finished run has {key}{f' and {panel}' if panel else ''}")
    with canvas.drawing():
        figure, axes = canvas.panels(len(places))
        for axis, title in zip(axes, sorted(places), strict=True):
            _fit_axis(axis, sorted(set(values)))
            lines = sorted(places[title].items(), key=lambda line: line[0][0])
            shifts = _shifts(axis, sorted(set(values)), len(lines))
            for ((_, method), points), shift in zip(lines, shifts, strict=True):
                most = 100 if measure.scale == 100 else np.inf
                _key_line(axis, method, {x: present.iloc[rows] for x, rows in sorted(points.items())}, most, shift)
            axis.set_title(canvas.label(", ".join(map(str, title[1:]))))
            axis.set_xlabel(canvas.key_label(key))
            axis.set_ylabel(axis_name(figure, measure.label))
        share_labels(figure, axes)
        parts = (present.iloc[rows] for lines in places.values() for line in lines.values() for rows in line.values())
        canvas.legend(figure, axes, count_note(parts, has_spread=True))
    return figure


def _fit_axis(axis: Axes, values: list[float]) -> None:
    """A tick for each of few values; those that span a factor of ten or more, such as rates, on a logarithmic axis."""
    is_log = values[0] > 0 and values[-1] >= 10 * values[0]
    if is_log:
        axis.set_xscale("log")
        axis.xaxis.set_minor_locator(NullLocator())
    gaps = np.diff(np.log(values) if is_log else values)
    if is_log or (len(values) <= _MOST_TICKS and (gaps >= 0.08 * gaps.sum()).all()):
        axis.set_xticks(values, [f"{value:g}" for value in values])


def _shifts(axis: Axes, values: list[float], count: int) -> list[float]:
    """How far each of ``count`` lines is moved to the side, in the units of the axis (logarithms on such a one)."""
    places = np.log10(values) if axis.get_xscale() == "log" else np.array(values)
    if len(places) < 2 or count < 2:
        return [0.0] * count
    whole = min(_APART * float(np.diff(places).min()), 0.05 * float(np.ptp(places)))
    return [whole * (place / (count - 1) - 0.5) for place in range(count)]


def _panel_title(key: str | None, value: Any) -> str:
    return canvas.setting(str(key), value_text(value).replace("_", " "))


def _key_line(axis: Axes, method: Method, points: dict[float, pd.DataFrame], most: float, shift: float) -> None:
    """Means with their deviations, which end at the largest value that the measure can have."""
    for x, part in points.items():
        if others := varying_keys(part):
            raise UserError(f"{method.label} at {x:g}: runs differ in {', '.join(others)} too; narrow them with where")
    style = method.style
    means = np.array([part["value"].mean() for part in points.values()])
    spreads = np.nan_to_num([part["value"].std(ddof=1) for part in points.values()])
    axis.errorbar(
        [x * 10**shift if axis.get_xscale() == "log" else x + shift for x in points],
        means,
        yerr=[spreads, np.minimum(spreads, most - means)],
        color=style.color,
        linestyle=style.dashes,
        marker=style.marker,
        markersize=3.5 * canvas.look().line_scale,
        linewidth=style.width * canvas.look().line_scale,
        elinewidth=0.8,
        capsize=2,
        label=canvas.label(method.label),
    )
