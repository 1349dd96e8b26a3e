"""Figures over configuration keys: heat maps of two (beta_1 x beta_2), bars or lines of one (the memory size)."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fl_platform.errors import UserError, unknown_name
from fl_platform.paper.methods import Method, order
from fl_platform.reporting import canvas
from fl_platform.reporting.cells import scenario_of, varying_keys
from fl_platform.reporting.measures import MEASURES, Measure, per_run
from fl_platform.reporting.styles import SEQUENCE, methods_in
from fl_platform.runs.frames import Runs, config_column

METHOD = "config.algorithm.name"
WIDEST = 40  # characters below a panel that fit side by side
Panels = dict[str, dict[tuple[Any, ...], pd.DataFrame]]


def panel_groups(frame: pd.DataFrame, columns: list[str]) -> Panels:
    """Rows by panel (algorithm and scenario) and by the values of ``columns``; they may differ only in the seed.

    Where the algorithm is one of the columns a panel is one scenario, and methods are in the order of tables.
    """
    places: dict[tuple[Any, ...], dict[tuple[Any, ...], list[int]]] = {}
    present = frame[frame[columns].notna().all(axis=1)]
    methods = methods_in(present)
    for place, (_, row) in enumerate(present.iterrows()):
        scenario, method = scenario_of(row), methods[str(row.get("config.algorithm.name"))]
        first, before = ((0, ""), "") if METHOD in columns else (method.order, f"{method.label}, ")
        title = (first, scenario.order(), f"{before}{scenario.label}")
        places.setdefault(title, {}).setdefault(tuple(row[column] for column in columns), []).append(place)
    panels: Panels = {}
    for title in sorted(places):
        panels[title[2]] = {
            values: present.iloc[places[title][values]]
            for values in sorted(places[title], key=partial(_order, columns))
        }
        for values, part in panels[title[2]].items():
            if others := varying_keys(part):
                shown = ", ".join(f"{short(column)}={value}" for column, value in zip(columns, values, strict=True))
                raise UserError(f"{title[2]}, {shown}: runs differ in {', '.join(others)} too; narrow them with where")
    if not panels:
        raise UserError(f"no finished run has {' and '.join(column.removeprefix('config.') for column in columns)}")
    return panels


def _order(columns: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    """The sorting key of values of some columns."""
    return tuple(order(value) if column == METHOD else value for column, value in zip(columns, values, strict=True))


def short(key: str) -> str:
    """The last word of a dotted key."""
    return key.split(".")[-1]


def value_text(value: Any) -> str:
    """The value of a key as axes and legends show it."""
    return f"{value:g}" if isinstance(value, float) else canvas.label(value)


def _texts(runs: Runs, column: str, values: Iterable[Any]) -> list[str]:
    """Values of a configuration key as ticks show them: a method by its label."""
    methods = methods_in(runs.runs) if column == METHOD else {}
    return [canvas.label(methods[one].label) if one in methods else value_text(one).replace("_", " ") for one in values]


def _seeds_note(groups: Iterable[pd.DataFrame], *, has_spread: bool) -> str:
    """How many seeds stand behind each number of a figure."""
    counts = {len(part) for part in groups}
    low, high = min(counts), max(counts)
    if high == 1:
        return "One seed"
    count = f"n = {high}" if low == high else f"n = {low} to {high}"
    return f"Mean{' ± std' if has_spread else ''} over seeds, {count}"


def _measured(runs: Runs, value: str) -> tuple[Measure, pd.DataFrame]:
    """The finished runs with a column ``value``, scaled as in tables."""
    if value not in MEASURES:
        raise unknown_name("value", value, MEASURES)
    finished, measure = runs.finished(), MEASURES[value]
    numbers = per_run(finished)[value].reindex(finished.runs["run_id"]).to_numpy() * measure.scale
    return measure, finished.runs.assign(value=numbers)


def heat_map(runs: Runs, rows: str, columns: str, value: str = "top_accuracy") -> Figure:
    """Mean of a measure over two configuration keys; one panel per algorithm and scenario."""
    measure, frame = _measured(runs, value)
    keys = [config_column(runs, rows, "rows"), config_column(runs, columns, "columns")]
    if keys[0] == keys[1]:
        raise UserError(f"rows and columns are both {rows}; a heat map needs two different keys")
    groups = panel_groups(frame, keys)
    with canvas.drawing(**{"axes.grid": False}) as look:
        figure, axes = canvas.panels(len(groups), height=1.15)
        for axis, (title, settings) in zip(axes, groups.items(), strict=True):
            means = pd.Series({values: part["value"].mean() for values, part in settings.items()}).unstack()
            across = sorted(means.columns, key=lambda one: _order(keys[1:], [one]))
            means = means.reindex(index=list(dict.fromkeys(values[0] for values in settings)), columns=across)
            _heat_panel(axis, means, measure.decimals)
            axis.set_xticks(range(means.shape[1]), _texts(runs, keys[1], means.columns))
            axis.set_yticks(range(means.shape[0]), _texts(runs, keys[0], means.index))
            canvas.set_title(figure, axis, title)
            axis.set_xlabel(canvas.key_label(columns))
            axis.set_ylabel(canvas.key_label(rows))
        canvas.share_labels(figure, axes)
        figure.suptitle(measure.label)
        note = _seeds_note((part for settings in groups.values() for part in settings.values()), has_spread=False)
        figure.supxlabel(note, fontsize=look.small)
    return figure


def _heat_panel(axis: Axes, table: pd.DataFrame, decimals: int) -> None:
    values = table.to_numpy(dtype=float)
    image = axis.imshow(values, cmap="cividis", origin="lower", aspect="auto")
    low, high = np.nanmin(values), np.nanmax(values)
    image.set_clim(low, max(high, low + 1e-9))
    for row, column in np.argwhere(np.isfinite(values)):
        number = values[row, column]
        color = "white" if number < low + 0.55 * (high - low) else "black"
        weight = "bold" if number == high else "normal"
        text = f"{number:.{min(decimals, 1)}f}"
        axis.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            fontsize=canvas.look().small - 1.5,
            color=color,
            fontweight=weight,
        )


def bars(runs: Runs, key: str, value: str = "top_accuracy") -> Figure:
    """A measure over the values of one configuration key; whiskers are one standard deviation (ddof=1)."""
    measure, frame = _measured(runs, value)
    column = config_column(runs, key, "key")
    groups = panel_groups(frame, [column])
    with canvas.drawing() as look:
        figure, axes = canvas.panels(len(groups))
        for axis, (title, settings) in zip(axes, groups.items(), strict=True):
            means = np.array([part["value"].mean() for part in settings.values()])
            spreads = np.nan_to_num([part["value"].std(ddof=1) for part in settings.values()])
            axis.bar(
                range(len(means)),
                means,
                yerr=spreads if spreads.any() else None,
                color=SEQUENCE[2],
                width=0.7,
                capsize=2.5,
            )
            for place, (mean, spread) in enumerate(zip(means, spreads, strict=True)):
                text = f"{mean:.{min(measure.decimals, 1)}f}"
                axis.annotate(
                    text,
                    (place, mean + spread),
                    (0, 2),
                    textcoords="offset points",
                    ha="center",
                    fontsize=look.small - 1,
                )
            labels = _texts(runs, column, (values[0] for values in settings))
            slant: dict[str, Any] = {"rotation": 20, "ha": "right"} if sum(map(len, labels)) > WIDEST else {}
            axis.set_xticks(range(len(means)), labels, **slant)
            _bar_range(axis, means, spreads)
            axis.grid(axis="x", visible=False)
            canvas.set_title(figure, axis, title)
            axis.set_xlabel("" if column == METHOD else canvas.key_label(key))
            axis.set_ylabel(canvas.axis_name(figure, measure.label))
        canvas.share_labels(figure, axes)
        note = _seeds_note((part for settings in groups.values() for part in settings.values()), has_spread=True)
        figure.supxlabel(note, fontsize=look.small)
    return figure


def _bar_range(axis: Axes, means: "np.ndarray[Any, Any]", spreads: "np.ndarray[Any, Any]") -> None:
    """Bars begin at zero, and end below the numbers over them."""
    low, high = min(0.0, float((means - spreads).min())), max(0.0, float((means + spreads).max()))
    axis.set_ylim(1.12 * low, high + 0.12 * (high - low) if high > low else 1.0)


def key_lines(runs: Runs, key: str, value: str = "top_accuracy", panel: str | None = None) -> Figure:
    """A measure over the values of one numeric key, a line per method: accuracy over the share of faulty workers.

    One panel per scenario, and per value of ``panel`` where it is given. Bars are one standard deviation (ddof=1).
    """
    measure, frame = _measured(runs, value)
    columns = [config_column(runs, key, "key"), *([config_column(runs, panel, "panel")] if panel else [])]
    places: dict[tuple[Any, ...], dict[tuple[Any, Method], dict[float, list[int]]]] = {}
    present = frame[frame[columns].notna().all(axis=1)]
    values = pd.to_numeric(present[columns[0]], errors="coerce")
    if values.isna().any():
        text = present[columns[0]][values.isna()].iloc[0]
        raise UserError(f"key={key} is {text} in some runs; key_lines draws over numbers, bars over any values")
    methods = methods_in(present)
    for place, (_, row) in enumerate(present.iterrows()):
        scenario, method = scenario_of(row), methods[str(row["config.algorithm.name"])]
        title = (scenario.order(), scenario.label, *(_panel_title(panel, row[column]) for column in columns[1:]))
        points = places.setdefault(title, {}).setdefault((method.order, method), {})
        points.setdefault(float(row[columns[0]]), []).append(place)
    if not places:
        raise UserError(f"no finished run has {key}{f' and {panel}' if panel else ''}")
    with canvas.drawing():
        figure, axes = canvas.panels(len(places))
        for axis, title in zip(axes, sorted(places), strict=True):
            for (_, method), points in sorted(places[title].items(), key=lambda line: line[0][0]):
                most = 100 if measure.scale == 100 else np.inf
                _key_line(axis, method, {x: present.iloc[rows] for x, rows in sorted(points.items())}, most)
            _fit_axis(axis, values)
            canvas.set_title(figure, axis, ", ".join(map(str, title[1:])))
            axis.set_xlabel(canvas.key_label(key))
            axis.set_ylabel(canvas.axis_name(figure, measure.label))
        canvas.share_labels(figure, axes)
        parts = (present.iloc[rows] for lines in places.values() for line in lines.values() for rows in line.values())
        canvas.legend(figure, axes, _seeds_note(parts, has_spread=True))
    return figure


def _fit_axis(axis: Axes, values: "pd.Series[float]") -> None:
    """Values that span a factor of ten or more, such as rates, lie on a logarithmic axis with a tick for each."""
    ticks = sorted(set(values))
    if ticks[0] <= 0 or ticks[-1] < 10 * ticks[0]:
        return
    axis.set_xscale("log")
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.xaxis.set_minor_locator(NullLocator())


def _panel_title(key: str | None, value: Any) -> str:
    return canvas.setting(str(key), value_text(value).replace("_", " "))


def _key_line(axis: Axes, method: Method, points: dict[float, pd.DataFrame], most: float) -> None:
    """Means with their deviations, which end at the largest value that the measure can have."""
    for x, part in points.items():
        if others := varying_keys(part):
            raise UserError(f"{method.label} at {x:g}: runs differ in {', '.join(others)} too; narrow them with where")
    style = method.style
    means = np.array([part["value"].mean() for part in points.values()])
    spreads = np.nan_to_num([part["value"].std(ddof=1) for part in points.values()])
    axis.errorbar(
        list(points),
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
