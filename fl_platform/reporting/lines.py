"""Curves for a browser: runs averaged by what they share, a band over seeds, thinned to what a screen can show."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fl_platform.paper.style import SEQUENCE, SEQUENCE_DASHES, Dashes, algorithm_order, algorithm_style
from fl_platform.reporting.shown import ShownRun, differing_settings, finite, numbers
from fl_platform.reporting.statistics import Numbers, band
from fl_platform.runs import metrics

SHARES = (metrics.TEST_ACCURACY, metrics.TOP_ACCURACY, metrics.FORGETTING)
MOST_LINES = 100
AXES = {"rounds": metrics.ROUND, "bytes": metrics.TOTAL_BYTES, "seconds": metrics.TOTAL_SECONDS}


@dataclass(frozen=True)
class Wish:
    """What a chart shows: a metric over an axis, runs grouped ``by`` some keys, within a window of the axis."""

    metric: str = metrics.TEST_ACCURACY
    by: tuple[str, ...] = ("algorithm", "scenario")
    axis: str = "rounds"
    points: int = 300
    smooth: int = 1
    start: float = -np.inf
    end: float = np.inf


@dataclass(frozen=True)
class Curve:
    """A seed-averaged curve; ``spread`` is the standard deviation (ddof=1), 0 where a single run is known."""

    x: Numbers
    mean: Numbers
    spread: Numbers


def make_lines(runs: Sequence[ShownRun], wish: Wish) -> dict[str, Any]:
    """The lines of one chart, ready for JSON; ``left_out`` counts the groups beyond what one chart can show."""
    groups: dict[tuple[str, ...], list[ShownRun]] = {}
    for run in runs:
        if len(numbers(run.log, wish.metric)):
            groups.setdefault(tuple(run.value(key) for key in wish.by), []).append(run)
    ordered = sorted(groups, key=lambda group: (algorithm_order(groups[group][0].algorithm), natural(group)))
    shown = ordered[:MOST_LINES]
    varies = [len({group[place] for group in shown}) > 1 for place in range(len(wish.by))]
    lines = []
    for place, group in enumerate(shown):
        curve = window(average(groups[group], wish.metric, wish.axis, wish.smooth), wish.start, wish.end)
        kept = thin(curve.mean, wish.points)
        parts = [label_of(key, value) for key, value in zip(wish.by, group, strict=True)]
        told = [part for part, differs in zip(parts, varies, strict=True) if differs] or parts[:1]
        line = {"label": ", ".join(told) or "all runs", "n": len(groups[group]), "averages": averaged(groups[group])}
        line |= appearance([groups[one][0] for one in shown], place)
        line |= {"x": plain(curve.x[kept]), "mean": plain(curve.mean[kept])}
        if len(groups[group]) > 1:
            low, high = band(curve.mean, curve.spread, most=1.0 if wish.metric in SHARES else np.inf)
            line |= {"low": plain(low[kept]), "high": plain(high[kept])}
        lines.append(line)
    return {"lines": lines, "left_out": len(ordered) - len(shown)}


def average(runs: Sequence[ShownRun], metric: str, axis: str, smooth: int = 1) -> Curve:
    """Mean and spread over the runs that know the metric at a round; the axis is averaged over the same runs."""
    parts = [(numbers(run.log, metrics.ROUND), numbers(run.log, metric), numbers(run.log, AXES[axis])) for run in runs]
    whole = [np.stack(columns) for columns in parts if len({len(column) for column in columns}) == 1]
    if not whole:
        return Curve(np.empty(0), np.empty(0), np.empty(0))
    joined = np.concatenate(whole, axis=1)
    rounds, values, along = joined[:, np.isfinite(joined).all(axis=0)]
    found, places, counts = np.unique(rounds, return_inverse=True, return_counts=True)
    mean = np.bincount(places, values, len(found)) / counts
    squares = np.bincount(places, (values - mean[places]) ** 2, len(found))
    spread = np.sqrt(squares / np.maximum(counts - 1, 1))
    return Curve(np.bincount(places, along, len(found)) / counts, trailing(mean, smooth), trailing(spread, smooth))


def trailing(values: Numbers, width: int) -> Numbers:
    """The mean of each value and the ``width - 1`` before it."""
    if width <= 1 or not len(values):
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - width, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts), dtype=np.float64)


def window(curve: Curve, start: float, end: float) -> Curve:
    """The part between ``start`` and ``end`` and one point either side, so that lines reach the edges."""
    first = max(int(np.searchsorted(curve.x, start, "left")) - 1, 0)
    last = int(np.searchsorted(curve.x, end, "right")) + 1
    return Curve(curve.x[first:last], curve.mean[first:last], curve.spread[first:last])


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
    return value if key in ("algorithm", "scenario", "run") else f"{key.removeprefix('algorithm.')}={value}"


def appearance(leaders: list[ShownRun], place: int) -> dict[str, Any]:
    """The algorithm's own colour where no two lines share an algorithm, else one of a sequence."""
    names = [run.algorithm for run in leaders]
    if len(set(names)) == len(names):
        style = algorithm_style(names[place])
        return {"color": style.color, "dash": dash(style.dashes), "width": 2.5 if "GradMA" in style.label else 1.75}
    dashes = SEQUENCE_DASHES[place // len(SEQUENCE) % len(SEQUENCE_DASHES)]
    return {"color": SEQUENCE[place % len(SEQUENCE)], "dash": dash(dashes), "width": 1.75}


def dash(dashes: Dashes) -> list[float]:
    """Lengths in pixels; empty for a solid line."""
    return [] if isinstance(dashes, str) else [2 * length for length in dashes[1]]


def natural(group: tuple[str, ...]) -> list[tuple[float, str]]:
    """Numbers by size, then text."""
    return [(float(text), "") if text.replace(".", "", 1).isdigit() else (np.inf, text) for text in group]


def plain(values: Numbers) -> list[float | None]:
    """Six significant digits, which is more than a screen shows; what is not finite becomes null."""
    return [finite(float(f"{value:.6g}")) for value in values.tolist()]
