"""How many rounds a metric takes to a target over the values of a numeric key, and the slope on logarithmic axes.

A slope of -1 of rounds over the cohort size S is the linear speed-up that convergence theorems promise.
"""

from math import log
from statistics import linear_regression
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from fl_platform.errors import UserError
from fl_platform.paper.methods import Method
from fl_platform.reporting import canvas
from fl_platform.reporting.cells import varying_keys
from fl_platform.reporting.layout import MISSING, NOT_REACHED, Cell, Row, Table
from fl_platform.reporting.measures import by_round
from fl_platform.reporting.statistics import Numbers, t_interval
from fl_platform.reporting.styles import methods_in
from fl_platform.reporting.tables import check_level, run_notes
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs, config_column


def speed_up_table(
    runs: Runs, key: str, metric: str = metrics.WORKERS_LOSS, target: float | None = None, level: float = 0.95
) -> Table:
    """Rounds until a falling metric reaches a target over the values of a key, and the slope of their logarithms.

    Rounds lie between evaluations, where the metric is taken to be linear. Without a ``target`` it is the lowest
    multiple of 0.01 that every run of the method reaches.
    """
    check_level(level)
    numbers, targets = _rounds(runs, key, metric, target)
    values = sorted(numbers["key"].unique())
    rows, records = [], []
    for method in targets:
        own = numbers[numbers["algorithm"] == method.name]
        slopes = _slopes(own)
        low, high = t_interval(slopes, level)
        slope = f"{slopes.mean():.3f} [{low:.3f}, {high:.3f}]" if len(slopes) > 1 else "needs 2 seeds"
        texts = [
            _text(own.loc[own["key"] == value, "rounds"].to_numpy(), numbers["seed"].nunique()) for value in values
        ]
        rows.append(Row(f"{method.label}, {targets[method]:.2f}", (*map(Cell, texts), Cell(slope))))
        head = {"algorithm": method.name, "target": targets[method], "slope": slopes.mean() if len(slopes) else np.nan}
        records += [
            head | {"low": low, "high": high, **row} for row in own.drop(columns="algorithm").to_dict("records")
        ]
    name = key.rpartition(".")[2]
    header = ((*((f"{name}={value:g}", 1) for value in values), ("slope", 1)),)
    seeds = sorted(numbers["seed"].unique().tolist())
    notes = (
        f"Rounds until {metric} is at most the target behind the method's name: mean±std over seeds "
        f"{', '.join(map(str, seeds))} (ddof=1). Slope of log(rounds) over log({name}): mean over seeds, each over "
        f"the values it has, and Student's {level:.0%} interval; -1 is a linear speed-up.",
    )
    title = f"Rounds to a target of {metric} by {name}"
    return Table(title, header, (tuple(rows),), (*notes, *run_notes(runs, [])), pd.DataFrame(records), "Method, target")


def speed_up_figure(runs: Runs, key: str, metric: str = metrics.WORKERS_LOSS, target: float | None = None) -> Figure:
    """The same on logarithmic axes, a line per method with whiskers of one deviation; dotted lines have slope -1."""
    numbers, targets = _rounds(runs, key, metric, target)
    if numbers["rounds"].isna().all():
        raise UserError(f"target={target:g}: no run reaches it, and there is nothing to draw")
    with canvas.drawing() as look:
        figure, (axis,) = canvas.panels(1)
        for method, goal in targets.items():
            by_key = numbers[numbers["algorithm"] == method.name].groupby("key")["rounds"]
            means, spreads, style = by_key.mean(), np.nan_to_num(by_key.std(ddof=1)), method.style
            label = f"{canvas.label(method.label)}, {goal:.2f}"
            marks: dict[str, Any] = {"color": style.color, "marker": style.marker, "capsize": 2, "label": label}
            axis.errorbar(means.index, means, yerr=spreads, linewidth=style.width * look.line_scale, **marks)
            axis.plot(means.index, means.iloc[0] * means.index[0] / means.index, color=style.color, linestyle=":")
        axis.set_xscale("log")
        axis.set_yscale("log")
        values = sorted(numbers["key"].unique())
        axis.set_xticks(values, [f"{value:g}" for value in values])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel(canvas.key_label(key))
        axis.set_ylabel("Rounds to the target")
        counts = numbers.groupby(["algorithm", "key"]).size()
        low, high = counts.min(), counts.max()
        canvas.legend(figure, [axis], f"Mean ± std over seeds, n = {low if low == high else f'{low} to {high}'}")
    return figure


def _rounds(runs: Runs, key: str, metric: str, target: float | None) -> tuple[pd.DataFrame, dict[Method, float]]:
    """A row per method, value of the key and seed; and the target of each method."""
    finished = runs.finished()
    column = config_column(finished, key, "key")
    curves = by_round(finished, [metric], finished.runs["run_id"])[metric]
    frame = finished.runs[finished.runs[column].notna() & finished.runs["run_id"].isin(curves.columns)]
    if frame.empty:
        raise UserError(f"no finished run has {key} and logged {metric}")
    is_positive = pd.to_numeric(frame[column], errors="coerce") > 0
    if not is_positive.all():
        text = frame[column][~is_positive].iloc[0]
        raise UserError(f"key={key} is {text} in some runs; a speed-up is over positive numbers")
    rows, targets, methods = [], {}, methods_in(frame)
    for name, own in frame.groupby("config.algorithm.name", sort=False):
        method = methods[str(name)]
        lowest = float(curves[own["run_id"]].min().max())
        targets[method] = np.ceil(100 * lowest - 1e-9) / 100 if target is None else target
        for value, at in own.groupby(column):
            if others := varying_keys(at):
                raise UserError(
                    f"{method.label} at {key}={value}: runs differ in {', '.join(others)}; narrow with where"
                )
            for _, run in at.iterrows():
                curve = curves[run["run_id"]].dropna()
                reached = falling_crossing(curve.to_numpy(), curve.index.to_numpy(dtype=float), targets[method])
                head = {"algorithm": method.name, "key": float(run[column]), "seed": int(run["config.seed"])}
                rows.append(head | {"rounds": reached})
    ordered = sorted(targets, key=lambda method: method.order)
    return pd.DataFrame(rows), {method: targets[method] for method in ordered}


def falling_crossing(values: Numbers, rounds: Numbers, target: float) -> float:
    """Where a curve first comes down to a target, linear between its points; NaN where it does not."""
    below = np.flatnonzero(values <= target)
    if not len(below):
        return float("nan")
    first = below[0]
    if first == 0:
        return float(rounds[0])
    share = (values[first - 1] - target) / (values[first - 1] - values[first])
    return float(rounds[first - 1] + share * (rounds[first] - rounds[first - 1]))


def _slopes(numbers: pd.DataFrame) -> Numbers:
    """The slope of log(rounds) over log(key) of each seed with two values of the key that always reached the target.

    Without a linear algebra library, whose last digit depends on the processor.
    """
    by_seed = [own for _, own in numbers.groupby("seed") if len(own) > 1 and own["rounds"].notna().all()]
    return np.array([linear_regression([*map(log, own["key"])], [*map(log, own["rounds"])]).slope for own in by_seed])


def _text(rounds: Numbers, seeds: int) -> str:
    if not len(rounds):
        return MISSING
    known = rounds[np.isfinite(rounds)]
    if len(known) < len(rounds):
        return f"{NOT_REACHED} by {len(rounds) - len(known)} of {len(rounds)}"
    spread = f"±{known.std(ddof=1):.0f}" if len(known) > 1 else ""
    return f"{known.mean():.0f}{spread}{f' (n={len(known)})' if len(known) < seeds else ''}"
