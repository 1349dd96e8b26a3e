"""Text around panels: names of axes and of ticks, kept within the room that a panel has for them."""

import math
import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes

from fl_platform.reporting.canvas import ShownFigure


def axis_name(figure: ShownFigure, text: str) -> str:
    """The name of a y axis, on several lines where one would be longer than the panel is high."""
    height = figure.get_figheight() / figure.num_rows - 0.5
    most = max(12, int(height * 72 / (0.5 * figure.look.font_size)))
    lines = math.ceil(len(text) / most)
    return "\n".join(textwrap.wrap(text, min(most, math.ceil(len(text) / lines) + 3))) if lines > 1 else text


def room_in(figure: ShownFigure) -> float:
    """How many characters of ticks fit side by side below a panel."""
    return 0.8 * figure.get_figwidth() / figure.num_columns * 72 / (0.5 * figure.look.small)


def set_ticks(figure: ShownFigure, axis: Axes, names: Sequence[str]) -> None:
    """Name the places 0, 1, ... of the x axis, slanted or upright where the names are wider than the panel."""
    axis.set_xticks(range(len(names)), names)
    room = room_in(figure)
    if sum(len(name) + 2 for name in names) > room:
        angle = 90 if len(names) * 5.7 > room else 25  # slanted lines are as far apart as 5.7 characters are wide
        axis.tick_params(axis="x", labelrotation=angle)
        for name in axis.get_xticklabels():
            name.set(ha="center" if angle == 90 else "right", rotation_mode="anchor" if angle != 90 else "default")


def share_labels(figure: ShownFigure, axes: list[Axes], *, has_equal_rows: bool = False) -> None:
    """Keep a label of an axis only at the left of a row of equal ones and at the bottom of a column.

    ``has_equal_rows`` says that panels with the same ticks on their y axes lie level, and need those once, too.
    """
    columns = figure.num_columns
    for place in reversed(range(len(axes))):
        axis = axes[place]
        if place % columns and axes[place - 1].get_ylabel() == axis.get_ylabel():
            axis.set_ylabel("")
            if has_equal_rows and _ticks(axes[place - 1]) == _ticks(axis):
                axis.tick_params(axis="y", labelleft=False)
    for above, below in zip(axes, axes[columns:], strict=False):  # from the top: those below still have theirs
        if above.get_xlabel() == below.get_xlabel():
            above.set_xlabel("")


def _ticks(axis: Axes) -> list[str]:
    return [text.get_text() for text in axis.get_yticklabels()]
