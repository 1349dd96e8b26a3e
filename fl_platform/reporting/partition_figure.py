"""How the training data of runs was divided among their workers: a circle per worker and class."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fl_platform.config.plugins import import_plugins
from fl_platform.errors import UserError
from fl_platform.paper.scenarios import Scenario
from fl_platform.reporting import canvas
from fl_platform.reporting.cells import scenario_of
from fl_platform.reporting.panel_text import share_labels
from fl_platform.reporting.partitions import class_counts
from fl_platform.reporting.styles import SEQUENCE
from fl_platform.runs.frames import Runs

_IN_PARTITION = ("data.", "num_workers", "seed")


def partition_bubbles(runs: Runs, workers: int = 20, plugins: list[str] | None = None) -> Figure:
    """The samples of the first workers by class, areas in proportion; one panel per partition, at its lowest seed.

    The partitions are worked out again from the runs' configurations; the data sets must be on this machine. Modules
    that a run names as plugins are not imported: those with its data set are named in ``plugins``.
    """
    import_plugins(plugins or [])
    if workers < 1:
        raise UserError(f"workers={workers} is not allowed; it must be a whole number >= 1")
    found: dict[Any, tuple[int, dict[str, Any]]] = {}
    for row in runs.runs.to_dict("records"):
        seed = int(row["config.seed"]) if np.isfinite(row.get("config.seed", np.nan)) else 0
        scenario = scenario_of(row)
        place = (Scenario(scenario.data, scenario.skew, 0, scenario.data_label), row.get("config.num_workers"))
        if place not in found or seed < found[place][0]:
            found[place] = (seed, _config(row))
    if not found:
        raise UserError("there is no run whose partition could be shown")
    with canvas.drawing(**{"axes.grid": False}):
        figure, axes = canvas.panels(len(found))
        places = sorted(found, key=lambda place: (place[0].order(), place[1]))
        for axis, place in zip(axes, places, strict=True):
            seed, config = found[place]
            counts = np.array(class_counts(config)["counts"])[:workers]
            worker, label = np.nonzero(counts)
            spacing = (
                figure.get_figwidth() / figure.num_columns * 50 / max(len(counts), 10)
            )  # points between two workers
            sizes = (1.6 * spacing) ** 2 * counts[worker, label] / counts.max()
            axis.scatter(worker, label, s=sizes, color=SEQUENCE[4], alpha=0.65, linewidth=0)
            axis.set_xlim(-0.8, len(counts) - 0.2)
            axis.set_ylim(-0.8, counts.shape[1] - 0.2)
            axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            axis.yaxis.set_major_locator(MaxNLocator(nbins=min(10, counts.shape[1]), integer=True))
            axis.set_xlabel("Worker")
            axis.set_ylabel("Class")
            axis.set_title(f"{canvas.label(place[0].data_label)}, {canvas.label(place[0].skew_label)}, seed {seed}")
        share_labels(figure, axes)
    return figure


def _config(row: dict[Any, Any]) -> dict[str, Any]:
    """The part of a row of the runs that decides its partition, as a nested configuration."""
    nested: dict[str, Any] = {}
    for column, value in row.items():
        key = str(column).removeprefix("config.")
        if key == column or not key.startswith(_IN_PARTITION) or value is None or value != value:
            continue
        if value in ({}, "{}"):  # a group without keys
            continue
        *groups, leaf = key.split(".")
        place = nested
        for group in groups:
            place = place.setdefault(group, {})
        place[leaf] = value
    return nested
