"""One table of several measures: a row per method, a column per measure, for the runs of one scenario."""

import pandas as pd

from fl_platform.errors import UserError
from fl_platform.reporting.layout import Row, Table
from fl_platform.reporting.measures import MEASURES
from fl_platform.reporting.selection import Selection
from fl_platform.reporting.tables import PAPER_SEEDS, statistic_table, target_table
from fl_platform.runs.frames import Runs

UNITS = {"rounds": "Rounds to target", "bytes": "Bytes to target", "seconds": "Seconds to target"}


def overview_table(
    runs: Runs,
    values: list[str],
    units: list[str],
    target: float | str | None = None,
    select: Selection = "only",
    seeds: int = PAPER_SEEDS,
    ddof: int = 1,
) -> Table:
    """Several measures side by side, and what it took to reach a target; the runs must be of one scenario."""
    parts = {name: statistic_table(runs, value=name, select=select, seeds=seeds, ddof=ddof) for name in values}
    for unit in units:
        parts[f"{unit}_to_target"] = target_table(runs, unit=unit, select=select, seeds=seeds, target=target)
    tables = list(parts.values())
    if not tables or not all(table.header and sum(span for _, span in table.header[0]) == 1 for table in tables):
        raise UserError("an overview needs runs of one scenario; narrow them with where")
    goals = {text for table in tables for line in table.header[2:] for text, _ in line}
    blocks = tuple(
        tuple(joined(rows) for rows in zip(*group, strict=True))
        for group in zip(*(table.blocks for table in tables), strict=True)
    )
    header = tuple((text, 1) for text in (*(MEASURES[v].label for v in values), *(UNITS[unit] for unit in units)))
    notes = dict.fromkeys(note for table in tables for note in table.notes)
    numbers = pd.concat([table.numbers.assign(measure=name) for name, table in parts.items()], ignore_index=True)
    title = f"Overview{f', target {goals.pop()}' if len(goals) == 1 else ''}"
    return Table(title, (header,), blocks, tuple(notes), numbers)


def joined(rows: tuple[Row, ...]) -> Row:
    """The cells of one method in several tables; the last has its communication in the label."""
    return Row(rows[-1].label, tuple(cell for row in rows for cell in row.cells))
