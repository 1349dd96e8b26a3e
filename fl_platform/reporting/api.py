"""``fl_platform.table`` and ``fl_platform.curves``: a frame and a figure of runs, for a notebook."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from fl_platform.errors import UserError, unknown_name
from fl_platform.reporting import render
from fl_platform.reporting.figures import accuracy_curves, key_curves
from fl_platform.reporting.layout import Table
from fl_platform.reporting.pivot import pivot_table
from fl_platform.reporting.selection import SELECTIONS, Selection
from fl_platform.reporting.tables import statistic_table
from fl_platform.runs import frames, metrics
from fl_platform.runs.frames import Runs, Source


def table(
    runs: Runs | Source | Iterable[Source],
    value: str = "top_accuracy",
    *,
    rows: str | Sequence[str] | None = None,
    columns: str | Sequence[str] = (),
    where: Mapping[str, Any] | None = None,
    select: Selection = "only",
    numbers: bool = False,
) -> pd.DataFrame:
    """Return the mean and standard deviation over seeds of one measure as a frame of text, such as 95.44±0.31.

    ``runs`` is what ``load_runs`` returned, or its argument. Without ``rows`` the table is laid out as the paper's:
    methods by scenarios. ``rows`` and ``columns`` are configuration keys of a free table, whose ``value`` may also be
    a key of the summary. ``where`` keeps only runs with these configuration values. Where runs of one cell differ in
    more than their seed, ``select="best"`` takes the best setting and "only" refuses. ``numbers=True`` returns a row
    per cell instead, with n, mean, standard deviations and the value of each seed.

    Raises UserError for keys, values and measures that no run has.
    """
    found = _runs(runs, where)
    if rows is None:
        if columns:
            raise UserError(f"table: columns={columns} needs rows, the configuration keys of the rows")
        made = statistic_table(found, value, _checked(select))
    else:
        made = pivot_table(found, _keys(rows), _keys(columns), value)
    return made.numbers if numbers else text_frame(made)


def curves(
    runs: Runs | Source | Iterable[Source],
    metric: str = metrics.TEST_ACCURACY,
    *,
    by: str = "algorithm.name",
    where: Mapping[str, Any] | None = None,
    smooth: int = 1,
    select: Selection = "only",
) -> Figure:
    """Return a figure of one metric over rounds: means over seeds, with a band of one standard deviation.

    ``by="algorithm.name"`` draws a panel per scenario and a line per method, any other configuration key a panel per
    method and scenario and a line per value of the key. ``smooth`` averages each seed over so many evaluated rounds.
    The other arguments are those of ``table``. Raises UserError where no finished run has the metric or the key.
    """
    found = _runs(runs, where)
    if isinstance(smooth, bool) or not isinstance(smooth, int) or smooth < 1:
        raise UserError(f"curves: smooth={smooth} is not allowed; it must be a whole number >= 1")
    if by == "algorithm.name":
        return accuracy_curves(found, "all", metric, smooth, _checked(select))
    return key_curves(found, by, metric, smooth)


def _runs(runs: Runs | Source | Iterable[Source], where: Mapping[str, Any] | None) -> Runs:
    return frames.select(runs if isinstance(runs, Runs) else frames.load(runs), where or {})


def _checked(select: Selection) -> Selection:
    if select not in SELECTIONS:
        raise unknown_name("select", select, SELECTIONS)
    return select


def _keys(keys: str | Sequence[str]) -> list[str]:
    return [keys] if isinstance(keys, str) else list(keys)


def text_frame(table: Table) -> pd.DataFrame:
    """The cells of a table as text; the index has its rows' labels, the columns one level for each header row.

    ``attrs["notes"]`` has the notes below the table.
    """
    rows = [row for block in table.blocks for row in block]
    index = pd.Index([row.label for row in rows], name=table.corner)
    header = [render.spread(level) for level in table.header]
    names = pd.MultiIndex.from_arrays(header) if len(header) > 1 else pd.Index(header[0] if header else [])
    frame = pd.DataFrame([[cell.text for cell in row.cells] for row in rows], index=index, columns=names)
    frame.attrs["notes"] = [str(note) for note in table.notes]
    return frame
