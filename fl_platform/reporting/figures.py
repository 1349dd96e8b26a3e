"""Figures of curves: by method, as the paper groups them, or by any configuration key; costs, seeds, QPs."""

from collections.abc import Sequence
from typing import Literal

from matplotlib.figure import Figure

from fl_platform.errors import unknown_name
from fl_platform.paper.methods import FURTHER_GROUPS, GROUPINGS, Group, Method
from fl_platform.reporting import canvas
from fl_platform.reporting.ablations import panel_groups, value_text
from fl_platform.reporting.cells import CellRuns, cell_runs
from fl_platform.reporting.curve_panels import Chart, Line, curve_figure
from fl_platform.reporting.forgetting import with_worker_forgetting
from fl_platform.reporting.selection import Selection
from fl_platform.reporting.styles import distinct, sequence_style
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs, config_column
from fl_platform.runs.status import RunStatus

QP_METRICS = (metrics.QP_WORKER_ACTIVE, metrics.QP_WORKER_RATIO, metrics.QP_SERVER_ACTIVE, metrics.QP_SERVER_RATIO)
QP_ERRORS = (metrics.QP_WORKER_ERROR, metrics.QP_WORKER_LENGTH, metrics.QP_SERVER_ERROR, metrics.QP_SERVER_LENGTH)
Split = Literal["auto", "groups", "none"]
_MOST_LINES = 20  # of a panel that is not split by itself


def accuracy_curves(
    runs: Runs,
    grouping: str = "all",
    metric: str = metrics.TEST_ACCURACY,
    smooth: int = 1,
    select: Selection = "only",
    by: str = "algorithm.name",
    split: Split = "auto",
) -> Figure:
    """One panel per scenario; the methods of one grouping (worker, server, both, gradma, all) with seed bands.

    Methods that are not of the paper are in all, and with FedAvg in the grouping named as their group: server
    optimiser, worker correction, personalised, robust, private, compressed, reference, plugin. ``by`` another
    configuration key draws a line per value of it and a panel per method and scenario. ``split: groups`` draws a
    panel per group of methods, which ``auto`` does for a panel of more than twenty lines.
    """
    if by != "algorithm.name":
        return key_curves(runs, by, metric, smooth)
    return curve_figure(runs, _method_panels(runs, grouping, select, split), [Chart(metric)], smooth)


def _method_panels(runs: Runs, grouping: str, select: Selection, split: Split = "none") -> dict[str, list[Line]]:
    known = [*GROUPINGS, *FURTHER_GROUPS, "all"]
    if grouping not in known:
        raise unknown_name("grouping", grouping, known)
    cells = [cell for cell in cell_runs(runs, select) if cell.seeds and _is_in(cell.method, grouping)]
    methods = distinct(cell.method for cell in cells)  # of those drawn: fewer than in the runs, so more free colours
    panels: dict[str, list[CellRuns]] = {}
    for cell in sorted(cells, key=lambda cell: cell.scenario.order()):
        panels.setdefault(cell.scenario.label, []).append(cell)
    if split == "groups" or (split == "auto" and any(len(panel) > _MOST_LINES for panel in panels.values())):
        panels = {f"{title}: {name}": part for title, own in panels.items() for name, part in _by_group(own).items()}
    return {
        title: [_method_line(methods[cell.method.name], cell.run_ids) for cell in own] for title, own in panels.items()
    }


def not_drawn(runs: Runs) -> str:
    """A sentence about the runs that figures leave out because they are not finished; nothing where all are."""
    endings = runs.runs.loc[runs.runs["status"] != RunStatus.FINISHED, "ending"].value_counts()
    counts = ", ".join(f"{count} {ending}" for ending, count in endings.items())
    return f"Not drawn, because not finished: {counts}." if counts else ""


def _by_group(cells: Sequence[CellRuns]) -> dict[str, list[CellRuns]]:
    """The cells by their method's group, each with FedAvg."""
    base = [cell for cell in cells if cell.method.group == Group.BASELINE]
    groups: dict[str, list[CellRuns]] = {}
    for cell in sorted(cells, key=lambda cell: list(Group).index(cell.method.group)):
        if cell not in base:
            groups.setdefault(cell.method.group.value, [*base]).append(cell)
    return groups or {Group.BASELINE.value: base}


def _is_in(method: Method, grouping: str) -> bool:
    if grouping in GROUPINGS:
        return method.name in GROUPINGS[grouping]
    return grouping == "all" or method.group in (Group.BASELINE, grouping)


def _method_line(method: Method, run_ids: Sequence[str]) -> Line:
    return Line(canvas.label(method.label), tuple(run_ids), method.style)


def key_curves(runs: Runs, key: str, metric: str = metrics.TEST_ACCURACY, smooth: int = 1) -> Figure:
    """One panel per method and scenario; one line per value of a configuration key, such as the memory size."""
    groups = panel_groups(runs.finished().runs, [config_column(runs, key, "key")])
    values = sorted(
        {setting[0] for settings in groups.values() for setting in settings},
        key=lambda value: (str(type(value)), value),
    )
    panels = {}
    for title, settings in groups.items():
        lines = []
        for (value,), rows in settings.items():
            style = sequence_style(values.index(value))
            lines.append(Line(canvas.setting(key, value_text(value)), tuple(rows["run_id"]), style))
        panels[title] = lines
    return curve_figure(runs, panels, [Chart(metric)], smooth)


def qp_activity(runs: Runs, smooth: int = 10, select: Selection = "only", errors: bool = False) -> Figure:
    """Active anchors and kept norm of both QPs over rounds, or how far they moved vectors: a row per scenario."""
    panels = _method_panels(runs, "gradma", select)
    shown = QP_ERRORS if errors else QP_METRICS
    return curve_figure(runs, panels, [Chart(key) for key in shown if key in runs.history], smooth)


def forgetting_curves(
    runs: Runs,
    grouping: str = "all",
    smooth: int = 1,
    select: Selection = "only",
    split: Split = "auto",
    of: Literal["classes", "workers"] = "classes",
) -> Figure:
    """Accuracy lost since the best round of each class (or worker), averaged over them; otherwise like ``curves``."""
    if of == "workers":
        return accuracy_curves(
            with_worker_forgetting(runs), grouping, metrics.WORKER_FORGETTING, smooth, select, split=split
        )
    return accuracy_curves(runs, grouping, metrics.FORGETTING, smooth, select, split=split)


def cost_curves(
    runs: Runs,
    grouping: str = "all",
    metric: str = metrics.TEST_ACCURACY,
    smooth: int = 1,
    select: Selection = "only",
) -> Figure:
    """A metric over what it cost: one panel over bytes communicated and one over seconds for each scenario."""
    charts = [Chart(metric, "bytes"), Chart(metric, "seconds")]
    return curve_figure(runs, _method_panels(runs, grouping, select), charts, smooth)


def seed_curves(
    runs: Runs,
    grouping: str = "all",
    metric: str = metrics.TEST_ACCURACY,
    smooth: int = 1,
    select: Selection = "only",
) -> Figure:
    """Every seed as a thin line and their mean as a thick one; panels like those of ``curves``."""
    return curve_figure(runs, _method_panels(runs, grouping, select), [Chart(metric)], smooth, each_seed=True)
