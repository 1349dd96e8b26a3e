"""Where the curves of a panel are: the range of its axis, an inset where they lie close, labels at their ends."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from fl_platform.paper.methods import Dashes
from fl_platform.reporting import canvas
from fl_platform.reporting.curves import Curve

_RISE = 0.1  # the part of a curve that may leave the axis at its lower end: the first rounds, which no figure is about
_END = 0.2  # the part of the x axis that an inset shows
_CLOSE = 0.2  # curves lie on each other where their ends take up less than this part of the axis
_MANY = 5
_NEAR_THE_END = 0.05  # part of a panel's width
_ENLARGED = 1.5  # an inset shows its curves at least so much larger
_LOWEST_INSET = 0.24  # part of a panel's height


@dataclass(frozen=True)
class Drawn:
    """A curve of a panel as it is drawn; ``seeds`` are the curves of its seeds, where these are drawn, too."""

    label: str
    color: str
    curve: Curve
    seeds: tuple[Curve, ...] = ()
    dashes: Dashes = "-"


def fit_range(axis: Axes, drawn: Sequence[Drawn], metric_is_rising: bool) -> None:
    """Set the y axis to where the curves are after their first rise; a flat panel gets a range around its value."""
    curves = [curve for one in drawn for curve in (one.curve, *one.seeds)]
    parts = [curve.mean[curve.x >= _quantile(curve.x, _RISE if metric_is_rising else 0.0)] for curve in curves]
    values = np.concatenate([part[np.isfinite(part)] for part in parts]) if parts else np.empty(0)
    if not len(values):
        return
    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-9 * max(1.0, abs(high)):  # constant, such as forgetting that is zero throughout
        pad = 0.05 * abs(high) if abs(high) > 1e-6 else 1.0
        axis.set_ylim(low - pad, high + pad)
        return
    axis.set_ylim(low - 0.05 * (high - low), high + 0.06 * (high - low))


def _quantile(x: "np.ndarray[tuple[int], np.dtype[np.float64]]", part: float) -> float:
    return float(x[0] + part * (x[-1] - x[0])) if len(x) else 0.0


@dataclass(frozen=True)
class End:
    """The last part of the x axis, where ``count`` curves end close together: its limits."""

    count: int
    x: tuple[float, float]
    y: tuple[float, float]


def end_of(axis: Axes, drawn: Sequence[Drawn]) -> End | None:
    """Where the most curves end close together; None for a few, or where they do not reach the end of the axis."""
    low, high = axis.get_ylim()
    left, right = axis.get_xlim()
    start = right - _END * (right - left)
    close = _close_ends(drawn, _CLOSE * (high - low))
    if len(close) < _MANY or any(one.curve.x[-1] < start for one in close):  # over seconds, ends lie apart
        return None
    shown = np.concatenate([one.curve.mean[one.curve.x >= start] for one in close])
    margin = 0.1 * float(np.ptp(shown)) or 0.1
    last = max(float(one.curve.x[-1]) for one in close)
    return End(len(close), (start, last), (float(shown.min()) - margin, float(shown.max()) + margin))


def add_inset(axis: Axes, drawn: Sequence[Drawn]) -> Axes | None:
    """An inset of the last rounds at the lower right, where many curves end close together and leave room for it."""
    low, high = axis.get_ylim()
    end, box = end_of(axis, drawn), _room(axis, drawn)
    if end is None or box is None or (end.y[1] - end.y[0]) / (high - low) * _ENLARGED > box[3]:
        return None
    inset = axis.inset_axes(box)
    for one in drawn:
        inset.plot(one.curve.x, one.curve.mean, color=one.color, linestyle=one.dashes, lw=0.8)
    inset.set_xlim(*end.x)
    inset.set_ylim(*end.y)
    inset.tick_params(labelsize=canvas.look().small - 1, pad=1, length=2)
    inset.locator_params(nbins=3)
    axis.indicate_inset_zoom(inset, edgecolor="0.4", linewidth=0.5)
    return inset


def _close_ends(drawn: Sequence[Drawn], width: float) -> list[Drawn]:
    """The most curves whose last values lie within ``width`` of each other."""
    ended = [one for one in drawn if len(one.curve.x) > 10 and np.isfinite(one.curve.mean[-1])]
    ended.sort(key=lambda one: float(one.curve.mean[-1]))
    last = np.array([one.curve.mean[-1] for one in ended])
    stops = np.searchsorted(last, last + width, side="right")
    return max((ended[first:stop] for first, stop in enumerate(stops)), key=len, default=[])


def _room(axis: Axes, drawn: Sequence[Drawn]) -> tuple[float, float, float, float] | None:
    """(left, bottom, width, height) of a part of the panel at its lower right without curves and bands, or None."""
    low, high = axis.get_ylim()
    left, right = axis.get_xlim()
    for start in (0.42, 0.5, 0.58):
        behind = left + (start - 0.12) * (right - left)
        parts = [np.fmin(one.curve.mean, one.curve.low)[one.curve.x > behind] for one in drawn]
        lowest = (min((float(part.min()) for part in parts if len(part)), default=high) - low) / (high - low)
        if (height := min(0.45, lowest - 0.17)) >= _LOWEST_INSET:
            return (start, 0.12, 0.97 - start, height)
    return None


def label_ends(axes: Sequence[Axes], drawn: Sequence[Sequence[Drawn]], height: float) -> bool:
    """Write each line's label at its right end; says whether it did.

    It does if in every panel all lines end at the right and their ends lie far enough apart. ``height`` is the height
    of a panel in inches.
    """
    look = canvas.look()
    for axis, lines in zip(axes, drawn, strict=True):
        low, high = axis.get_ylim()
        if len(lines) > _MANY or any(not len(one.curve.x) for one in lines):
            return False
        left, right = axis.get_xlim()
        if min(float(one.curve.x[-1]) for one in lines) < right - _NEAR_THE_END * (right - left):
            return False  # another line would run through the label
        ends = sorted(float(one.curve.mean[-1]) for one in lines)
        needed = 1.1 * look.small / 72 / (0.75 * height) * (high - low)
        if not all(low <= end <= high for end in ends) or (np.diff(ends) < needed).any():
            return False
    for axis, lines in zip(axes, drawn, strict=True):
        for one in lines:
            end = (float(one.curve.x[-1]), float(one.curve.mean[-1]))
            text = axis.annotate(one.label, end, (3, 0), textcoords="offset points", va="center", annotation_clip=False)
            text.set(color=one.color, fontsize=look.small)
    return True
