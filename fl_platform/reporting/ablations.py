"""Figures over configuration keys: heat maps of two (beta_1 x beta_2), bars of one (the memory size)."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_platform.errors import UserError, unknown_name
from fl_platform.paper.methods import order
from fl_platform.reporting import canvas
from fl_platform.reporting.cells import panel_of, varying_keys
from fl_platform.reporting.measures import MEASURES, Measure, per_run
from fl_platform.reporting.panel_text import axis_name, room_in, set_ticks, share_labels
from fl_platform.reporting.styles import SEQUENCE, methods_in
from fl_platform.runs.frames import Runs, config_column

METHOD = "config.algorithm.name"
_MOST_NUMBERS = 60  # over bars
Panels = dict[str, dict[tuple[Any, ...], pd.DataFrame]]


def panel_groups(frame: pd.DataFrame, columns: list[str]) -> Panels:
    """Rows by panel (algorithm and scenario) and by the values of ``columns``; they may differ only in the seed.

    What the columns give does not divide panels: where the algorithm is one of them a panel is one scenario, and
    methods are in the order of tables; where omega is one of them a panel has all levels of skew.
    """
    places: dict[tuple[Any, ...], dict[tuple[Any, ...], list[int]]] = {}
    present = frame[frame[columns].notna().all(axis=1)]
    methods = methods_in(present)
    for place, (_, row) in enumerate(present.iterrows()):
        method, (place_of_panel, scenario) = methods[str(row.get("config.algorithm.name"))], panel_of(row, columns)
        first, before = ((0, ""), "") if METHOD in columns else (method.order, f"{method.label}, ")
        title = (first, place_of_panel, f"{before}{scenario}")
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


def count_note(groups: Iterable[pd.DataFrame], *, has_spread: bool) -> str:
    """How many seeds stand behind each number of a figure."""
    counts = {len(part) for part in groups}
    low, high = min(counts), max(counts)
    if high == 1:
        return "One seed"
    count = f"n = {high}" if low == high else f"n = {low} to {high}"
    return f"Mean{' ± std' if has_spread else ''} over seeds, {count}"


def measured(runs: Runs, value: str) -> tuple[Measure, pd.DataFrame]:
    """The finished runs with a column ``value``, scaled as in tables."""
    if value not in MEASURES:
        raise unknown_name("value", value, MEASURES)
    finished, measure = runs.finished(), MEASURES[value]
    numbers = per_run(finished, value)[value].reindex(finished.runs["run_id"]).to_numpy() * measure.scale
    return measure, finished.runs.assign(value=numbers)


def heat_map(runs: Runs, rows: str, columns: str, value: str = "top_accuracy") -> Figure:
    """Mean of a measure over two configuration keys; one panel per algorithm and scenario."""
    measure, frame = measured(runs, value)
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
            set_ticks(figure, axis, _texts(runs, keys[1], means.columns))
            axis.set_yticks(range(means.shape[0]), _texts(runs, keys[0], means.index))
            axis.set_title(canvas.label(title))
            axis.set_xlabel(canvas.key_label(columns))
            axis.set_ylabel(canvas.key_label(rows))
        share_labels(figure, axes, has_equal_rows=True)
        figure.suptitle(measure.label)
        note = count_note((part for settings in groups.values() for part in settings.values()), has_spread=False)
        figure.supxlabel(note, fontsize=look.small)
    return figure


def _heat_panel(axis: Axes, table: pd.DataFrame, decimals: int) -> None:
    values = table.to_numpy(dtype=float)
    image = axis.imshow(values, cmap="cividis", origin="lower", aspect="auto")
    low, high = np.nanmin(values), np.nanmax(values)
    image.set_clim(*((low, high) if high > low else (low - 2, low + 1)))  # equal numbers: a light ground, none bold
    for row, column in np.argwhere(np.isfinite(values)):
        number = values[row, column]
        color = "white" if number < low + 0.55 * (high - low) else "black"
        weight = "bold" if number == high > low else "normal"
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
    measure, frame = measured(runs, value)
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
            angle = 90 if len(means) * 4.5 > room_in(figure) else 0
            for place, (mean, spread) in enumerate(zip(means, spreads, strict=True)):
                text = f"{mean:.{min(measure.decimals, 1)}f}" if len(means) <= _MOST_NUMBERS else ""
                axis.annotate(
                    text,
                    (place, mean + spread),
                    (0, 2),
                    textcoords="offset points",
                    ha="center",
                    fontsize=look.small - 1,
                    va="bottom",
                    rotation=angle,
                )
            set_ticks(figure, axis, _texts(runs, column, (values[0] for values in settings)))
            _bar_range(axis, means, spreads, 0.25 if angle else 0.12)
            axis.grid(axis="x", visible=False)
            axis.set_title(canvas.label(title))
            axis.set_xlabel("" if column == METHOD else canvas.key_label(key))
            axis.set_ylabel(axis_name(figure, measure.label))
        share_labels(figure, axes)
        note = count_note((part for settings in groups.values() for part in settings.values()), has_spread=True)
        figure.supxlabel(note, fontsize=look.small)
    return figure


def _bar_range(axis: Axes, means: "np.ndarray[Any, Any]", spreads: "np.ndarray[Any, Any]", above: float) -> None:
    """Bars begin at zero, and end below the numbers over them."""
    low, high = min(0.0, float((means - spreads).min())), max(0.0, float((means + spreads).max()))
    axis.set_ylim(1.12 * low, high + above * (high - low) if high > low else 1.0)
