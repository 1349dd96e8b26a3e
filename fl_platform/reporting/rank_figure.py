"""The critical-difference diagram: average ranks over scenarios, and which of them are not told apart."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_platform.reporting import canvas
from fl_platform.reporting.inference import Ranking, ranking
from fl_platform.reporting.measures import MEASURES
from fl_platform.reporting.selection import Selection
from fl_platform.runs.frames import Runs


def rank_diagram(runs: Runs, value: str = "top_accuracy", select: Selection = "only", level: float = 0.95) -> Figure:
    """Average ranks over scenarios on one axis; bars join methods that Nemenyi's test does not tell apart."""
    found = ranking(runs, value, select, level)
    order = sorted(range(len(found.methods)), key=lambda place: (found.ranks[place], found.methods[place].order))
    names = [canvas.label(found.methods[place].label) for place in order]
    ranks = [float(found.ranks[place]) for place in order]
    cliques = groups_within(ranks, found.difference)
    rows = (len(names) + 1) // 2
    with canvas.drawing(**{"axes.grid": False}) as look:
        line = 1.35 * look.font_size / 72
        top = 3.5 + 0.45 * len(cliques)
        figure, (axis,) = canvas.panels(1)
        figure.set_figheight(line * (rows + top) + 0.1)
        if look.width is None:
            figure.set_figwidth(7.0)
        axis.set_axis_off()
        axis.set_xlim(0, 1)
        axis.set_ylim(rows + 0.5, -top)
        _draw(axis, found, names, ranks, cliques, rows)
        axis.text(0.5, -top + 0.1, _heading(found, value), ha="center", va="top", fontsize=look.small)
    return figure


def groups_within(ranks: list[float], difference: float) -> list[tuple[int, int]]:
    """(first, last) of the longest stretches of sorted ranks that span at most the difference; at least two long."""
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(place for place, other in enumerate(ranks) if other - rank <= difference)
        if last > first and not (found and found[-1][1] >= last):
            found.append((first, last))
    return found


def _heading(found: Ranking, value: str) -> str:
    test = f"Friedman p = {found.p_value:.2g}, " if found.p_value == found.p_value else ""
    return f"{MEASURES[value].label}, {found.counted}: {test}CD = {found.difference:.2f}"


def _draw(
    axis: Axes, found: Ranking, names: list[str], ranks: list[float], cliques: list[tuple[int, int]], rows: int
) -> None:
    left, right = 0.22, 0.78
    most = len(names)
    small = canvas.look().small

    def across(rank: float) -> float:
        return left + (right - left) * (rank - 1) / (most - 1)

    base = -0.45 * len(cliques) - 0.7
    axis.plot([left, right], [base, base], color="black", linewidth=0.8)
    step = max(1, -(-(most - 1) // 8))
    for tick in range(1, most + 1, step):
        axis.plot([across(tick)] * 2, [base, base - 0.25], color="black", linewidth=0.8)
        axis.text(across(tick), base - 0.35, str(tick), ha="center", va="bottom", fontsize=small)
    width = min(found.difference, most - 1)
    for row, (first, last) in enumerate(cliques):
        height = base + 0.4 + 0.45 * row
        axis.plot(
            [across(ranks[first]) - 0.006, across(ranks[last]) + 0.006], [height] * 2, color="0.25", linewidth=2.5
        )
    axis.plot([left, left + (right - left) * width / (most - 1)], [base - 1.35] * 2, color="0.4", linewidth=1.2)
    axis.text(left - 0.01, base - 1.35, "CD", ha="right", va="center", fontsize=small)
    for place, (name, rank) in enumerate(zip(names, ranks, strict=True)):
        is_left = place < rows
        height = 0.5 + (place if is_left else most - 1 - place)
        side, align = (left - 0.03, "right") if is_left else (right + 0.03, "left")
        axis.plot([across(rank), across(rank), side], [base, height, height], color="0.5", linewidth=0.6)
        axis.text(
            side + (-0.008 if is_left else 0.008), height, f"{name} ({rank:.1f})", ha=align, va="center", fontsize=small
        )
