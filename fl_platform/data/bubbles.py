"""Pictures of a partition: bubbles (worker on x, class on y, area proportional to samples), and sizes of workers."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_platform.errors import UserError, cannot_write


def draw_partition(class_counts: NDArray[np.int64], path: Path, title: str, most_workers: int) -> None:
    """Write bubbles of the first workers and a histogram of all sizes; ``path``'s suffix chooses the format.

    ``class_counts`` is [workers, classes]. Raises ``UserError`` if the file cannot be written or matplotlib does not
    know the suffix.
    """
    shown = class_counts[:most_workers]
    note = "" if len(shown) == len(class_counts) else f" (bubbles: the first {len(shown)})"
    figure, width, height = _figure(shown, extra=2.2)
    above, below = figure.subplots(2, 1, height_ratios=(height, 2))
    _bubbles(above, shown, width, height, f"{title}{note}")
    sizes = class_counts.sum(axis=1)
    below.hist(sizes, bins=min(50, len(np.unique(sizes))), color="tab:blue", alpha=0.6)
    below.set(xlabel="samples of a worker", ylabel="workers")
    below.grid(alpha=0.2)
    _write(figure, path)


def draw_bubbles(class_counts: NDArray[np.int64], path: Path, title: str) -> None:
    """Write the bubbles of ``class_counts`` [workers, classes] alone; raises ``UserError`` as ``draw_partition``."""
    figure, width, height = _figure(class_counts)
    _bubbles(figure.subplots(), class_counts, width, height, title)
    _write(figure, path)


def _figure(class_counts: NDArray[np.int64], extra: float = 0.0) -> tuple[Any, float, float]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    num_workers, num_classes = class_counts.shape
    width, height = np.clip(2 + 0.11 * num_workers, 6, 24), np.clip(2 + 0.22 * num_classes, 4, 16)
    figure = Figure(figsize=(width, height + extra), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, float(width), float(height)


def _bubbles(axes: Any, class_counts: NDArray[np.int64], width: float, height: float, title: str) -> None:
    num_workers, num_classes = class_counts.shape
    workers, classes = np.nonzero(class_counts)
    counts = class_counts[workers, classes]
    cell = 72 * min(0.9 * width / num_workers, 0.8 * height / num_classes)  # points between neighbours
    largest = min(3 * cell, 30) ** 2  # the few large ones may overlap; most are far smaller
    areas = np.maximum(counts / counts.max() * largest, 2)  # one sample stays visible
    marks = axes.scatter(workers, classes, s=areas, color="tab:blue", alpha=0.6, linewidths=0)
    axes.set(xlabel="worker", ylabel="class", title=title)
    axes.set_xlim(-1.5, num_workers + 0.5)
    axes.set_ylim(-1.5, num_classes + 0.5)
    axes.set_xticks(range(0, num_workers, -(-num_workers // 20)))
    axes.set_yticks(range(0, num_classes, -(-num_classes // 20)))
    axes.grid(alpha=0.2)
    axes.set_axisbelow(True)
    legend = marks.legend_elements("sizes", num=4, func=lambda area: area / largest * counts.max())
    axes.legend(*legend, title="samples", loc="upper left", bbox_to_anchor=(1, 1), labelspacing=1.5, frameon=False)


def _write(figure: Any, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.canvas.print_figure(path)
    except OSError as error:
        raise cannot_write(f"--out {path}", error) from None
    except ValueError as error:  # a suffix matplotlib does not know
        raise UserError(f"--out {path} cannot be written: {error}") from None
