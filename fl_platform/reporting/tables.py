"""Tables 1 and 2 of the paper and their kin, from runs."""

import json
from typing import Any, Literal

import numpy as np
import pandas as pd

from fl_platform.config.targets import Target, parse_target
from fl_platform.errors import UserError, unknown_name
from fl_platform.paper import tables as paper_tables
from fl_platform.paper.scenarios import Scenario
from fl_platform.reporting.cell_numbers import cell_crossings, cell_values
from fl_platform.reporting.cells import CellRuns, cell_runs
from fl_platform.reporting.layout import MISSING, NOT_REACHED, TIMES, Note, Table, layout
from fl_platform.reporting.measures import MEASURES, Measure, per_run
from fl_platform.reporting.selection import Selection
from fl_platform.reporting.statistics import t_interval
from fl_platform.runs.frames import Runs
from fl_platform.runs.status import Ending, RunStatus
from fl_platform.runs.writing import bytes_text

PAPER_SEEDS = 3
Bold = Literal["best", "supported"]
SUPPORTED = "Bold: better than every other of its group, by paired differences whose 95% t interval excludes zero."
NAMED = 5
"""Runs that a note names; the archive has them all."""


def statistic_table(
    runs: Runs,
    value: str = "top_accuracy",
    select: Selection = "only",
    seeds: int = PAPER_SEEDS,
    ddof: int = 1,
    complete: bool = False,
    bold: Bold = "best",
) -> Table:
    """Mean and spread over seeds of one measure; Table 1 is ``top_accuracy``.

    ``bold: supported`` prints the best of a group bold only if the 95% t interval of its paired differences to every
    other method of the group is above zero.
    """
    if value not in MEASURES:
        raise unknown_name("value", value, MEASURES)
    check_ddof(ddof)
    measure = MEASURES[value]
    cells = cell_runs(runs, select)
    numbers = cell_values(cells, per_run(runs, value)[value], measure)
    if not numbers.empty:
        numbers["text"] = [statistic_text(row, measure, seeds, ddof) for row in numbers.to_dict("records")]
        printed = numbers["mean"].map(lambda mean: float(f"{mean:.{measure.decimals}f}"))  # what prints alike ties
        numbers["score"] = printed if measure.is_better_larger else -printed
    notes = [f"± is the standard deviation over seeds (ddof={ddof}); n={seeds} seeds where no n is given."]
    supported = None
    if bold == "supported":
        notes.append(SUPPORTED)
        supported = supported_cells(numbers, measure)
    return layout(measure.label, numbers, [*notes, *run_notes(runs, cells)], complete=complete, bold=supported)


def supported_cells(numbers: pd.DataFrame, measure: Measure) -> set[tuple[str, Scenario]]:
    """(algorithm, scenario) of the methods whose advantage over every other of their group the seeds support."""
    sign = 1 if measure.is_better_larger else -1
    rows = numbers.to_dict("records")
    values = [{seed: value for seed, value in json.loads(row["by_seed"]).items() if value is not None} for row in rows]
    found = set()
    for row, own in zip(rows, values, strict=True):
        lows = []
        for other, theirs in zip(rows, values, strict=True):
            is_rival = other["scenario"] == row["scenario"] and other["method"].contest == row["method"].contest
            if is_rival and other["algorithm"] != row["algorithm"]:
                shared = sorted(own.keys() & theirs.keys())
                lows.append(t_interval(np.array([sign * (own[seed] - theirs[seed]) for seed in shared]))[0])
        if lows and all(low > 0 for low in lows):
            found.add((str(row["algorithm"]), row["scenario"]))
    return found


def check_ddof(ddof: int) -> None:
    """Raise UserError unless a standard deviation divides by n or n - 1."""
    if ddof not in (0, 1):
        raise UserError(f"ddof={ddof} is not allowed; allowed: 0 | 1")


def check_level(level: float) -> None:
    """Raise UserError unless a confidence level lies between 0 and 1."""
    if not 0 < level < 1:
        raise UserError(f"level={level} is not allowed; it must be between 0 and 1, such as 0.95")


def statistic_text(row: dict[Any, Any], measure: Measure, seeds: int, ddof: int) -> str:
    """``98.22±0.05 (n=2, diverged 1/3)``."""
    spread = row[f"std_ddof{ddof}"]
    text = f"{row['mean']:.{measure.decimals}f}" + (f"±{spread:.{measure.decimals}f}" if row["n"] > 1 else "")
    return with_remarks(text, row, seeds)


def with_remarks(text: str, row: dict[Any, Any], seeds: int) -> str:
    """What became of the seeds, behind a cell's text, or in its place when none is left."""
    count = row[RunStatus.DIVERGED]
    diverged = [f"{RunStatus.DIVERGED} {count}/{row['n'] + count}"] if count else []
    if row["n"] == 0:
        return diverged[0] if diverged else MISSING
    remarks = ([f"n={row['n']}"] if row["n"] != seeds else []) + diverged
    return f"{text} ({', '.join(remarks)})" if remarks else text


def target_table(
    runs: Runs,
    unit: str = "rounds",
    select: Selection = "only",
    seeds: int = PAPER_SEEDS,
    target: float | str | None = None,
    complete: bool = False,
) -> Table:
    """What it took to reach the target accuracy: unit is rounds (Table 2), rounds_by_seed, bytes or seconds."""
    if unit not in _UNITS:
        raise unknown_name("unit", unit, _UNITS)
    cells = cell_runs(runs, select)
    targets = scenario_targets(runs, cells, target)
    numbers = cell_crossings(runs, cells, targets)
    if not numbers.empty:
        numbers["text"] = [target_text(row, unit, seeds) for row in numbers.to_dict("records")]
        numbers["score"] = -numbers["rounds" if unit == "rounds_by_seed" else unit]
    reading = (
        "each seed's own curve, in the order of the seeds"
        if unit == "rounds_by_seed"
        else "the seed-averaged accuracy curve"
    )
    notes = [f"{NOT_REACHED}: not reached. Read off {reading}."]
    if complete or any(cell.method.load > 1 for cell in cells):
        notes[0] += f" 2{TIMES}: twice the communication per round."
    notes += evaluation_notes(runs, cells)
    if unit == "seconds":
        notes.append("Seconds compare algorithms only when their runs had the same machine to themselves.")
    if complete:
        targets |= {scenario: Target("accuracy", value) for scenario, value in paper_tables.targets().items()}
    third = {scenario: goal.title for scenario, goal in targets.items()}
    title = _UNITS[unit]
    if any(goal.metric != "accuracy" for goal in targets.values()):
        title, notes[0] = title.replace("target accuracy ac", "target"), notes[0].replace("accuracy curve", "curve")
    return layout(title, numbers, [*notes, *run_notes(runs, cells)], third, show_load=True, complete=complete)


_UNITS = {
    "rounds": "Rounds to reach the target accuracy ac",
    "rounds_by_seed": "Rounds to reach the target accuracy ac, seed by seed",
    "bytes": "Communication to reach the target accuracy ac",
    "seconds": "Seconds to reach the target accuracy ac",
}


def target_text(row: dict[Any, Any], unit: str, seeds: int) -> str:
    """What a cell says of a target: when it was reached, or that it was not."""
    if unit == "rounds_by_seed":
        text = ", ".join(
            NOT_REACHED if value is None else f"{value:.0f}" for value in json.loads(row["rounds_by_seed"]).values()
        )
    elif np.isnan(row["rounds"]):
        text = NOT_REACHED
    elif np.isnan(row[unit]):
        text = "not logged"
    else:
        text = {"rounds": f"{row[unit]:,.0f}", "seconds": f"{row[unit]:,.1f}"}.get(unit) or bytes_text(row[unit])
    return with_remarks(text, row, seeds)


def scenario_targets(runs: Runs, cells: list[CellRuns], target: float | str | None) -> dict[Scenario, Target]:
    """One target per scenario: the given one, else the paper's, else the highest accuracy of the runs' configuration.

    Runs that were configured with other bounds only have the first of them.
    """
    known = paper_tables.targets() if target is None else {}
    configured = runs.runs.set_index("run_id").get("config.evaluation.targets")
    found: dict[Scenario, Target] = {}
    for cell in cells:
        value = target or known.get(cell.scenario)
        if value is None and configured is not None and cell.run_ids:
            text = configured[cell.run_ids[0]]
            listed = json.loads(text) if isinstance(text, str) else None
            accuracies = [one for one in listed or [] if not isinstance(one, str)]
            value = max(accuracies) if accuracies else listed[0] if listed else None
        if value is not None:
            found.setdefault(cell.scenario, parse_target(value))
    if cells and not found:
        raise UserError("no target accuracy is known for these scenarios; give one, such as target: 0.9")
    return found


_RULES: dict[Selection, str] = {
    "only": "by where",
    "best": "by mean top test accuracy",
    "best_late": "by mean test accuracy of the last tenth of the rounds",
    "common": "for all methods together by mean top test accuracy",
    "common_late": "for all methods together by mean test accuracy of the last tenth of the rounds",
}


def evaluation_notes(runs: Runs, cells: list[CellRuns]) -> list[str]:
    """What a reader of crossings must know where the runs of the cells were not evaluated in every round."""
    if "config.evaluation.every" not in runs.runs:
        return []
    ids = [run_id for cell in cells for run_id in cell.run_ids]
    found = runs.runs.loc[runs.runs["run_id"].isin(ids), "config.evaluation.every"].dropna()
    every = sorted({int(value) for value in found})
    if not every or every[-1] == 1:
        return []
    period = " to ".join(str(value) for value in dict.fromkeys((every[0], every[-1])))
    return [f"Evaluated every {period} rounds: the first evaluation that reaches the target counts."]


def run_notes(runs: Runs, cells: list[CellRuns]) -> "list[str | Note]":
    """What a reader must know about the runs: what is left out, what was selected, what was damaged."""
    notes: list[str | Note] = []
    for ending in (ending for ending in reversed(Ending) if not ending.status.has_ended):
        ids = sorted(runs.runs.loc[runs.runs["ending"] == ending, "run_id"])
        if ids:
            rest = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
            left_out = f"Not averaged: {len(ids)} {ending}"
            notes.append(Note(f"{left_out} ({', '.join(ids[:NAMED])}{rest}).", f"{left_out}."))
    tried = [cell for cell in cells if cell.num_settings > 1]
    if tried:
        most = max(cell.num_settings for cell in tried)
        notes.append(f"Hyper-parameters were selected {_RULES[tried[0].rule]}, of up to {most} settings a cell.")
    return notes + [Note(warning) for warning in runs.warnings]
