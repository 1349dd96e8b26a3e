"""Runs of many settings beside the paper's column: what each rule of choice takes, and how near every setting comes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fl_platform.errors import UserError, unknown_name
from fl_platform.paper import tables as paper_tables
from fl_platform.paper.methods import Method
from fl_platform.paper.scenarios import Scenario
from fl_platform.reporting.cell_numbers import cell_crossings, cell_values
from fl_platform.reporting.cells import CellRuns, cell_runs
from fl_platform.reporting.layout import NOT_REACHED, Cell, Row, Table
from fl_platform.reporting.measures import MEASURES, per_run
from fl_platform.reporting.selection import SELECTIONS, Selection
from fl_platform.reporting.symbols import name_of
from fl_platform.reporting.tables import scenario_targets
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs, config_column
from fl_platform.runs.status import RunStatus

RULES: dict[Selection, str] = {
    "best": "best of each method, top accuracy",
    "best_late": "best of each method, last tenth",
    "common": "one for all methods, top accuracy",
    "common_late": "one for all methods, last tenth",
}
DISTANCES = ("accuracy_distance", "rounds_distance")


@dataclass(frozen=True)
class Line:
    """A row of the table: settings of some methods, with our numbers and the paper's."""

    label: str
    records: list[dict[str, Any]]


def rule_table(runs: Runs, by: str, keys: list[str], rules: list[str] | None = None) -> Table:
    """What every rule of choice makes of runs, apart for the values of a key, and its distance to both paper tables.

    A cell has the values of ``keys`` of the chosen setting, its mean top accuracy and the round in which the mean
    curve reaches the paper's target. The distances are means over the methods: of |accuracy - the paper's| in points,
    and of |log2(rounds / the paper's)|, where a target that was not reached counts as reached in the last round.
    """
    for rule in rules or []:
        if rule not in RULES:
            raise unknown_name("rules", rule, RULES)
    chosen = [rule for rule in SELECTIONS if rule in (rules or RULES)]
    blocks = [
        [Line(f"{group}: {RULES[rule]}", _beside_paper(own, cell_runs(own, rule), keys)) for rule in chosen]
        for group, own in _apart(runs, [by])
    ]
    return _table("Rules of choice beside the paper", "Runs: rule", blocks, runs, keys)


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
    top = _column(cell_values(cells, per_run(runs)["top_accuracy"], MEASURES["top_accuracy"]), "mean")
    rounds = _column(cell_crossings(runs, cells, scenario_targets(runs, cells, None)), "rounds")
    paper_top, paper_rounds = _column(paper_tables.table1(), "mean"), _column(paper_tables.table2(), "rounds")
    settings, last = runs.runs.set_index("run_id"), float(runs.rounds[metrics.ROUND].max())
    records = []
    for cell in cells:
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
    seeds = sorted(runs.runs["config.seed"].dropna().astype(int).unique().tolist())
    notes = (
        f"{', '.join(map(name_of, keys))}{': ' if keys else ''}top accuracy (%), round in which the target is reached; "
        f"mean curves over seeds {', '.join(map(str, seeds))}.",
        "off Table 1: mean over the methods of |accuracy - the paper's|, in points. off Table 2: mean of "
        "|log2(rounds / the paper's)|; a target that was not reached counts as reached in the last round.",
    )
    rows = tuple(tuple(_row(line, methods, keys) for line in lines) for lines in blocks)
    return Table(title, (header,), rows, notes, numbers.drop(columns="method", errors="ignore"), corner)


def _row(line: Line, methods: list[Method], keys: list[str]) -> Row:
    by_name = {record["algorithm"]: record for record in line.records}
    cells = [_text(by_name[method.name], keys) if method.name in by_name else "missing" for method in methods]
    distances = [np.nanmean([record[name] for record in line.records]) for name in DISTANCES]
    return Row(line.label, (*map(Cell, cells), Cell(f"{distances[0]:.1f}"), Cell(f"{distances[1]:.2f}")))


def _text(record: dict[str, Any], keys: list[str]) -> str:
    if not record["n"]:
        return RunStatus.DIVERGED.value
    setting = _texts(tuple(record[key] for key in keys)) + ": " if keys else ""
    reached = NOT_REACHED if np.isnan(record["rounds"]) else f"{record['rounds']:.0f}"
    return f"{setting}{record['top_accuracy']:.1f}, {reached}"
