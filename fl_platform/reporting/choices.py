"""Runs of many settings beside the paper's column: what each rule of choice takes, and how near every setting comes."""

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd

from fl_platform.errors import UserError, unknown_name
from fl_platform.paper import tables as paper_tables
from fl_platform.paper.methods import Method
from fl_platform.paper.scenarios import Scenario
from fl_platform.reporting.cell_numbers import cell_crossings, cell_values
from fl_platform.reporting.cells import CellRuns, cell_runs, is_held_out
from fl_platform.reporting.layout import MISSING, NOT_REACHED, Cell, Row, Table
from fl_platform.reporting.measures import MEASURES, per_run
from fl_platform.reporting.selection import Selection
from fl_platform.reporting.symbols import name_of
from fl_platform.reporting.tables import scenario_targets
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs, config_column
from fl_platform.runs.status import RunStatus

RULES: dict[str, str] = {
    "best": "best of each method, top accuracy",
    "best_late": "best of each method, last tenth",
    "common": "one for all methods, top accuracy",
    "common_late": "one for all methods, last tenth",
    "validation": "best of each method on held-out data, top accuracy",
    "validation_late": "best of each method on held-out data, last tenth",
    "nearest": "nearest to Table 1 for each method (a bound, no rule)",
}
"""Selections, and as a bound what no choice can improve on."""
DISTANCES = ("accuracy_distance", "rounds_distance")


@dataclass(frozen=True)
class Line:
    """A row of the table: settings of some methods, with our numbers and the paper's."""

    label: str
    records: list[dict[str, Any]]


def rule_table(runs: Runs, by: str, keys: list[str], rules: list[str] | None = None) -> Table:
    """What every rule of choice makes of runs, apart for the values of a key, and its distance to both paper tables.

    A cell has the values of ``keys`` of the chosen setting, its top accuracy over seeds and the round in which the mean
    curve reaches the paper's target. Runs that were evaluated on held-out data count for the rules that choose on it
    only; unless they are named, those rules are left out where there are no such runs.

    The distances are means over the methods: of |accuracy - the paper's| in points, and of |log2(rounds / the
    paper's)|, where a target that was not reached counts as reached in the last round.
    """
    for rule in rules or []:
        if rule not in RULES:
            raise unknown_name("rules", rule, RULES)
    blocks = [
        [Line(f"{group}: {RULES[rule]}", _chosen_by(rule, own, keys)) for rule in _rules(own, rules)]
        for group, own in _apart(runs, [by])
    ]
    held_out = is_held_out(runs.runs)
    table = _table("Rules of choice beside the paper", "Runs: rule", blocks, runs.only(~held_out), keys)
    if not held_out.any():
        return table
    note = f"The rules on held-out data choose by other runs, of seeds {_seeds(runs.only(held_out))}."
    return replace(table, notes=(*table.notes, note))


def _rules(runs: Runs, named: list[str] | None) -> list[str]:
    """The rules that were named; else those that the runs allow."""
    has_held_out = is_held_out(runs.runs).any()
    return [rule for rule in RULES if (rule in named if named else has_held_out or not _is_on_held_out(rule))]


def _is_on_held_out(rule: str) -> bool:
    return rule.startswith("validation")


def _chosen_by(rule: str, runs: Runs, keys: list[str]) -> list[dict[str, Any]]:
    """What a rule takes of the runs, each method beside the paper."""
    tested = runs.only(~is_held_out(runs.runs))
    if rule == "nearest":
        return _nearest(tested, keys)
    return _beside_paper(tested, cell_runs(runs if _is_on_held_out(rule) else tested, cast("Selection", rule)), keys)


def _nearest(runs: Runs, keys: list[str]) -> list[dict[str, Any]]:
    """Each method at the setting, of those with the most seeds, whose top accuracy is nearest to the paper's."""
    tried: dict[str, list[dict[str, Any]]] = {}
    for _, at in _apart(runs, keys):
        for record in _beside_paper(at, cell_runs(at), keys):
            tried.setdefault(record["algorithm"], []).append(record)
    return [min(records, key=lambda one: (-one["n"], one["accuracy_distance"])) for records in tried.values()]


def setting_table(runs: Runs, by: str, keys: list[str]) -> Table:
    """Every setting of some keys, apart for the values of another, and its distance to both tables of the paper."""
    blocks = [
        [Line(f"{group}: {setting}", _beside_paper(at, cell_runs(at), [])) for setting, at in _apart(own, keys)]
        for group, own in _apart(runs, [by])
    ]
    return _table("Settings beside the paper", f"Runs: {', '.join(map(name_of, keys))}", blocks, runs, [])


def _apart(runs: Runs, keys: list[str]) -> list[tuple[str, Runs]]:
    """The runs by the values of some keys, in order."""
    columns = [runs.runs[config_column(runs, key, "by or keys:")] for key in keys]
    values = pd.Series(list(zip(*columns, strict=True)), index=runs.runs.index)
    return [(_texts(value), runs.only(values == value)) for value in sorted(set(values[columns[0].notna()]))]


def _texts(values: tuple[Any, ...]) -> str:
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def _beside_paper(runs: Runs, cells: list[CellRuns], keys: list[str]) -> list[dict[str, Any]]:
    """Each cell with its setting, our numbers and the paper's."""
    if len({cell.scenario for cell in cells}) > 1:
        raise UserError("settings are compared with one column of the paper; narrow the runs with where")
    tops = cell_values(cells, per_run(runs, "top_accuracy")["top_accuracy"], MEASURES["top_accuracy"])
    top, spread = _column(tops, "mean"), _column(tops, "std_ddof1")
    rounds = _column(cell_crossings(runs, cells, scenario_targets(runs, cells, None)), "rounds")
    paper_top, paper_rounds = _column(paper_tables.table1(), "mean"), _column(paper_tables.table2(), "rounds")
    settings, last = runs.runs.set_index("run_id"), float(runs.rounds[metrics.ROUND].max())
    records = []
    for cell in cells:
        if not cell.seeds and not cell.num_diverged:
            continue  # nothing has run at the setting that was chosen
        place = (cell.method.name, cell.scenario)
        if place not in paper_top:
            raise UserError(f"{cell.method.name} on {cell.scenario.label} is not a cell of the paper's tables")
        counted = [last if np.isnan(count) else count for count in (rounds[place], paper_rounds[place])]
        records.append(
            {
                "algorithm": cell.method.name,
                "method": cell.method,
                "n": len(cell.seeds),
                RunStatus.DIVERGED.value: cell.num_diverged,
                **{key: settings.loc[cell.run_ids[0], f"config.{key}"] for key in keys if cell.run_ids},
                "top_accuracy": top[place],
                "std_ddof1": spread[place],
                "paper_accuracy": paper_top[place],
                "rounds": rounds[place],
                "paper_rounds": paper_rounds[place],
                "accuracy_distance": abs(top[place] - paper_top[place]),
                "rounds_distance": abs(float(np.log2(counted[0] / counted[1]))),
            }
        )
    return records


def _column(table: pd.DataFrame, name: str) -> dict[tuple[str, Scenario], float]:
    """A column by method and scenario."""
    return dict(zip(zip(table["algorithm"], table["scenario"], strict=True), table[name], strict=True))


def _table(title: str, corner: str, blocks: list[list[Line]], runs: Runs, keys: list[str]) -> Table:
    found = {record["algorithm"]: record["method"] for lines in blocks for line in lines for record in line.records}
    methods: list[Method] = sorted(found.values(), key=lambda method: method.order)
    header = (*((method.label, 1) for method in methods), ("off Table 1", 1), ("off Table 2", 1))
    numbers = pd.DataFrame([{"line": line.label, **row} for lines in blocks for line in lines for row in line.records])
    notes = (
        f"{', '.join(map(name_of, keys))}{': ' if keys else ''}top accuracy (%) with its standard deviation (ddof=1) "
        f"over seeds, round in which the mean curve reaches the target; seeds {_seeds(runs)}.",
        "off Table 1: mean over the methods of |accuracy - the paper's|, in points. off Table 2: mean of "
        "|log2(rounds / the paper's)|; a target that was not reached counts as reached in the last round.",
    )
    rows = tuple(tuple(_row(line, methods, keys) for line in lines) for lines in blocks)
    return Table(title, (header,), rows, notes, numbers.drop(columns="method", errors="ignore"), corner)


def _seeds(runs: Runs) -> str:
    return ", ".join(map(str, sorted(runs.runs["config.seed"].dropna().astype(int).unique().tolist())))


def _row(line: Line, methods: list[Method], keys: list[str]) -> Row:
    by_name = {record["algorithm"]: record for record in line.records}
    cells = [_text(by_name[method.name], keys) if method.name in by_name else MISSING for method in methods]
    distances = [pd.Series([record[name] for record in line.records], dtype=float).mean() for name in DISTANCES]
    return Row(line.label, (*map(Cell, cells), Cell(f"{distances[0]:.1f}"), Cell(f"{distances[1]:.2f}")))


def _text(record: dict[str, Any], keys: list[str]) -> str:
    if not record["n"]:
        return RunStatus.DIVERGED.value
    setting = _texts(tuple(record[key] for key in keys)) + ": " if keys else ""
    reached = NOT_REACHED if np.isnan(record["rounds"]) else f"{record['rounds']:.0f}"
    spread = f" ± {record['std_ddof1']:.1f}" if record["n"] > 1 else ""
    return f"{setting}{record['top_accuracy']:.1f}{spread}, {reached}"
