"""Curves for a browser: runs grouped by what they share, averaged, and thinned to what a screen can show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fl_platform.paper.methods import Dashes, Method
from fl_platform.reporting.curves import Curve, Seed, average
from fl_platform.reporting.measures import is_share
from fl_platform.reporting.shown import ShownRun, differing_settings, finite, numbers
from fl_platform.reporting.statistics import Numbers
from fl_platform.reporting.styles import distinct, sequence_style
from fl_platform.runs import metrics

MOST_LINES = 100
AXES = {"rounds": metrics.ROUND, "bytes": metrics.TOTAL_BYTES, "seconds": metrics.TOTAL_SECONDS}


@dataclass(frozen=True)
class Chart:
    """What a chart shows: a metric over an axis, runs grouped ``by`` some keys, within a window of the axis."""

    metric: str = metrics.TEST_ACCURACY
    by: tuple[str, ...] = ("algorithm", "scenario")
    axis: str = "rounds"
    points: int = 300
    smooth: int = 1
    start: float = -np.inf
    end: float = np.inf


def make_lines(runs: Sequence[ShownRun], chart: Chart, methods: Mapping[str, Method] | None = None) -> dict[str, Any]:
    """The lines of one chart, ready for JSON; ``left_out`` counts the groups beyond what one chart can show.

    ``methods`` by name are those of all charts that stand together, so that a method looks the same in each.
    """
    methods = methods or distinct(run.method for run in runs)
    groups: dict[tuple[str, ...], list[ShownRun]] = {}
    for run in runs:
        if len(numbers(run.log, chart.metric)):
            label = methods[run.algorithm].label
            group = tuple(label if key == "algorithm" else run.value(key) for key in chart.by)
            groups.setdefault(group, []).append(run)
    ordered = sorted(groups, key=lambda group: (groups[group][0].method.order, natural(group)))
    shown = ordered[:MOST_LINES]
    varies = [len({group[place] for group in shown}) > 1 for place in range(len(chart.by))]
    looks = appearances([methods[groups[group][0].algorithm] for group in shown])
    most = 1.0 if is_share(chart.metric) else np.inf
    lines = []
    for look, group in zip(looks, shown, strict=True):
        whole = average([seed_of(run, chart.metric, chart.axis) for run in groups[group]], chart.smooth, most)
        curve = window(whole, chart.start, chart.end)
        curve = curve.part(thin(curve.mean, chart.points))
        parts = [label_of(key, value) for key, value in zip(chart.by, group, strict=True)]
        named = [part for part, differs in zip(parts, varies, strict=True) if differs] or parts[:1]
        line = {"label": ", ".join(named) or "all runs", "n": len(groups[group]), "averages": averaged(groups[group])}
        line |= look | {"x": plain(curve.x), "mean": plain(curve.mean)}
        if curve.has_band:
            line |= {"low": plain(curve.low), "high": plain(curve.high)}
        lines.append(line)
    return {"lines": lines, "left_out": len(ordered) - len(shown)}


def seed_of(run: ShownRun, metric: str, axis: str) -> Seed:
    """A run's metric along an axis; empty where the run does not know one of them."""
    columns = [numbers(run.log, key) for key in (metrics.ROUND, metric, AXES[axis])]
    return Seed(*(columns if len({len(column) for column in columns}) == 1 else [np.empty(0)] * 3))


def window(curve: Curve, start: float, end: float) -> Curve:
    """The part between ``start`` and ``end`` and one point either side, so that lines reach the edges."""
    first = max(int(np.searchsorted(curve.x, start, "left")) - 1, 0)
    last = int(np.searchsorted(curve.x, end, "right")) + 1
    return curve.part(slice(first, last))


def thin(values: Numbers, points: int) -> "np.ndarray[Any, np.dtype[np.intp]]":
    """At most ``points`` places of a curve: both ends, the lowest and the highest of each stretch; no peak is lost."""
    count = len(values)
    if count <= max(points, 4):
        return np.arange(count)
    stretches = (max(points, 4) - 2) // 2
    width = -(-count // stretches)
    padding = np.full(stretches * width - count, np.nan)
    table = np.concatenate([values, padding]).reshape(stretches, width)
    base = np.arange(stretches) * width
    lowest = np.where(np.isnan(table), np.inf, table).argmin(axis=1) + base
    highest = np.where(np.isnan(table), -np.inf, table).argmax(axis=1) + base
    kept = np.unique(np.concatenate([[0, count - 1], lowest, highest]))
    return kept[kept < count]


def averaged(runs: Sequence[ShownRun]) -> list[str]:
    """Settings, other than the seed, in which the runs of one line differ: a reader must know what is averaged."""
    return differing_settings(runs)


def label_of(key: str, value: str) -> str:
    """How a line names the value of a key."""
    return value if key in ("algorithm", "scenario", "run") else f"{key.removeprefix('algorithm.')}={value}"


def appearances(methods: Sequence[Method]) -> list[dict[str, Any]]:
    """How lines of these methods are drawn: in the methods' styles if no two are of one method, else in a sequence."""
    own, names = [method.style for method in methods], {method.name for method in methods}
    styles = own if len(names) == len(methods) else [sequence_style(place) for place in range(len(methods))]
    return [{"color": style.color, "dash": dash(style.dashes), "width": 1.25 * style.width} for style in styles]


def dash(dashes: Dashes) -> list[float]:
    """Lengths in pixels; empty for a solid line."""
    return [] if isinstance(dashes, str) else [2 * length for length in dashes[1]]


def natural(group: tuple[str, ...]) -> list[tuple[float, str]]:
    """Numbers by size, then text."""
    return [(value, "") if (value := _number(text)) is not None else (np.inf, text) for text in group]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def plain(values: Numbers) -> list[float | None]:
    """Six significant digits, which is more than a screen shows; what is not finite becomes null."""
    return [finite(float(f"{value:.6g}")) for value in values.tolist()]
