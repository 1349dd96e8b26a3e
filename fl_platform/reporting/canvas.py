"""What all figures share: their look, their panels, and files whose bytes depend on nothing but the runs."""

import io
import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from fl_platform.errors import visible
from fl_platform.paper.methods import METHODS
from fl_platform.runs.writing import write_atomically

FORMATS = ("png", "svg", "pdf")

STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "savefig.dpi": 150,
    "svg.hashsalt": "fl_platform",  # else element ids are random
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "text.parse_math": False,  # names are data: a dollar sign is a dollar sign
}
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def save(figure: Figure, place: Path) -> list[Path]:
    """The figure in every format beside ``place`` (a path without suffix)."""
    place.parent.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(STYLE):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the panels are placed: once is enough for all formats
        for form in FORMATS:
            path = place.with_name(f"{place.name}.{form}")
            drawn = io.BytesIO()
            figure.savefig(drawn, format=form, metadata=_METADATA[form])
            write_atomically(path, drawn.getvalue())
            written.append(path)
    return written


class ShownFigure(Figure):
    """A figure that a notebook shows as a picture, whether or not pyplot was imported there."""

    def _repr_png_(self) -> bytes:
        drawn = io.BytesIO()
        with mpl.rc_context(STYLE):
            self.savefig(drawn, format="png", metadata=_METADATA["png"])
        return drawn.getvalue()


_LONGEST_LABEL = 48


def label(text: object) -> str:
    """Text as it may stand in a figure: visible, and short enough to leave room for data."""
    shown = visible(text)
    return shown if len(shown) <= _LONGEST_LABEL else shown[: _LONGEST_LABEL - 3] + "..."


def panels(count: int, columns: int | None = None) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` axes in rows of ``columns`` (at most 3 unless given)."""
    columns = columns or (2 if count == 4 else min(3, count))
    rows = math.ceil(count / columns)
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06)
    figure = ShownFigure(figsize=(3.3 * columns, 2.6 * rows), layout=layout)
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axis in axes[count:]:
        figure.delaxes(axis)
    return figure, axes[:count]


def legend(figure: Figure, axes: list[Axes]) -> None:
    """One legend for all panels, right of them, so that it hides no data."""
    handles: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    places = {method.label: place for place, method in enumerate(METHODS.values())}
    labels = sorted(handles, key=lambda label: places.get(label, len(places)))
    figure.set_figwidth(figure.get_figwidth() + 0.7 + 0.075 * max(map(len, labels), default=0))  # room of its own
    figure.set_figheight(max(figure.get_figheight(), 0.3 + 0.2 * len(labels)))  # sixteen names outgrow one panel
    figure.legend([handles[label] for label in labels], labels, loc="outside right upper", handlelength=3.2)
