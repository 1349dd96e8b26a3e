"""Free tables: any number of the runs by any of their configuration keys."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fl_platform.errors import unknown_name
from fl_platform.paper.methods import Method, order
from fl_platform.reporting.cells import varying_columns, varying_keys, with_defaults
from fl_platform.reporting.layout import MISSING, Cell, Row, Table
from fl_platform.reporting.measures import MEASURES, is_share, per_run
from fl_platform.reporting.styles import methods_in
from fl_platform.reporting.tables import check_ddof, run_notes
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs, config_column
from fl_platform.runs.status import ENDED, RunStatus

Key = tuple[Any, ...]
METHOD = "algorithm.name"
_NONE = "none"


def pivot_table(runs: Runs, rows: list[str], columns: list[str], value: str, ddof: int = 1) -> Table:
    """Any number of finished runs by any configuration keys; every cell states its n and how many diverged."""
    check_ddof(ddof)
    ended = runs.only(runs.runs["status"].isin(ENDED))
    ended = replace(ended, runs=with_defaults(ended.runs))
    title, by_run, scale, decimals = _pivot_values(ended, value)
    row_keys = keys_of(ended, rows, "rows")
    column_keys = keys_of(ended, columns, "columns")
    places: dict[tuple[Key, Key], list[int]] = {}
    for place, pair in enumerate(zip(row_keys, column_keys, strict=True)):
        places.setdefault(pair, []).append(place)
    values = by_run.reindex(ended.runs["run_id"]).to_numpy(dtype=np.float64) * scale
    is_finished = (ended.runs["status"] == RunStatus.FINISHED).to_numpy()
    varying = varying_columns(ended.runs)
    numbers, texts, others = [], {}, set[str]()
    for (row, column), everyone in places.items():
        members = [place for place in everyone if is_finished[place]]
        diverged = len(everyone) - len(members)
        each = values[members][np.isfinite(values[members])]
        record = dict(zip([*rows, *columns], [*row, *column], strict=True))
        record |= {"n": len(each), RunStatus.DIVERGED.value: diverged}
        record |= {"mean": each.mean() if len(each) else np.nan, "std_ddof0": each.std() if len(each) else np.nan}
        record |= {"std_ddof1": each.std(ddof=1) if len(each) > 1 else np.nan}
        spread = f"±{record[f'std_ddof{ddof}']:.{decimals}f}" if len(each) > 1 else ""
        remark = _remark(len(everyone), diverged, len(members) - len(each) if is_target(value) else 0)
        count = f"(n={len(each)}, {remark})" if remark else f"(n={len(each)})"
        mean = f"{record['mean']:.{decimals}f}{spread} {count}"
        texts[row, column] = mean if len(each) else remark or "not logged"
        numbers.append(record)
        others |= varying_keys(varying.iloc[everyone]).keys()
    down, across = ordered_keys(rows, row_keys), ordered_keys(columns, column_keys)
    shown = partial(_shown, methods_in(ended.runs))
    body = [
        Row(", ".join(map(shown, rows, row)), tuple(Cell(texts.get((row, one), MISSING)) for one in across))
        for row in down
    ]
    header = tuple(tuple((f"{key}={shown(key, one[place])}", 1) for one in across) for place, key in enumerate(columns))
    notes = [f"± is the standard deviation over runs (ddof={ddof})." if is_finished.any() else "No finished run."]
    notes += [f"Cells average over {', '.join(sorted(others))}."] if others else []
    blocks, all_notes = ((tuple(body),) if body else ()), (*notes, *run_notes(runs, []))
    return Table(title, header or (((value, 1),),), blocks, all_notes, pd.DataFrame(numbers), ", ".join(rows))


def is_target(value: str) -> bool:
    """Whether a number of the summary says what it took to reach a target: a run without it has not reached it."""
    return value.startswith(metrics.TO_TARGET)


def _remark(total: int, diverged: int, not_reached: int) -> str:
    """How many runs of a cell are not in its mean, and why."""
    counts = {RunStatus.DIVERGED.value: diverged, "not reached": not_reached}
    return ", ".join(f"{why} {count}/{total}" for why, count in counts.items() if count)


def _shown(known: dict[str, Method], name: str, value: Any) -> str:
    """A value of a key as a table shows it: a method by its label."""
    return known[value].label if name == METHOD and value in known else str(value)


def keys_of(runs: Runs, names: list[str], flag: str) -> list[Key]:
    """The values of some configuration keys, run by run."""
    columns = [runs.runs[config_column(runs, name, flag)].tolist() for name in names]
    values = [[_NONE if value is None or value != value else value for value in column] for column in columns]
    return list(zip(*values, strict=True)) if values else [()] * len(runs.runs)


def ordered_keys(names: list[str], found: list[Key]) -> list[Key]:
    """Distinct keys: numbers by size, then text, then none; algorithms in the paper's order."""

    def place(name: str, value: Any) -> tuple[Any, ...]:
        if name == METHOD:
            return (1, *order(str(value)))
        return (0, value, "") if isinstance(value, int | float) else (2 if value == _NONE else 1, 0, str(value))

    return sorted(set(found), key=lambda key: [place(name, value) for name, value in zip(names, key, strict=True)])


def _pivot_values(runs: Runs, value: str) -> "tuple[str, pd.Series[float], float, int]":
    """(title, value by run, scale, decimals) of a measure or of a number in the summary."""
    if value in MEASURES:
        measure = MEASURES[value]
        return measure.label, per_run(runs, value)[value], measure.scale, measure.decimals
    summaries = [
        name
        for name in runs.runs.columns
        if name.startswith("summary.") and pd.api.types.is_numeric_dtype(runs.runs[name])
    ]
    known = {name.removeprefix("summary."): name for name in summaries}
    if value not in known:
        raise unknown_name("--value", value, [*MEASURES, *known])
    column = runs.runs.set_index("run_id")[known[value]].astype(float)
    if is_target(value):
        target, unit = value.removeprefix(metrics.TO_TARGET).rsplit("/", 1)
        return f"{unit.capitalize()} to reach {target}", column, 1, 1 if unit == "seconds" else 0
    return value, column, 100 if is_share(value) else 1, 2 if is_share(value) else 4
