"""What a table is, and the paper's layout: methods in blocks, scenarios as columns, the best of a group bold."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fl_platform.paper.methods import ABOVE, METHODS, Group, Method
from fl_platform.paper.scenarios import PAPER_SCENARIOS, Scenario

MISSING = "missing"
NOT_REACHED = "--"
TIMES = "\u00d7"
GROUP_ORDER = (*(group for group in Group if group != Group.REFERENCE), Group.REFERENCE)


@dataclass(frozen=True)
class Cell:
    text: str
    is_bold: bool = False


@dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """``header`` rows are (text, columns spanned); ``blocks`` of rows are set apart; ``numbers`` is tidy."""

    title: str
    header: tuple[tuple[tuple[str, int], ...], ...]
    blocks: tuple[tuple[Row, ...], ...]
    notes: tuple[str, ...] = ()
    numbers: pd.DataFrame = field(default_factory=pd.DataFrame)
    corner: str = "Algorithm"


def layout(
    title: str,
    numbers: pd.DataFrame,
    notes: list[str],
    third: dict[Scenario, str] | None = None,
    show_load: bool = False,
    complete: bool = False,
) -> Table:
    """Cells (algorithm, method, scenario, text, score) in the paper's layout, the best score of each group bold.

    ``complete`` adds the paper's methods and scenarios of which there is no run.
    """
    if numbers.empty:
        return Table(title, (), (), ("No finished run.", *notes))
    scenarios, methods = set(numbers["scenario"]), set(numbers["method"])
    if complete:
        scenarios |= set(PAPER_SCENARIOS)
        methods |= set(METHODS.values())
    ordered = sorted(methods, key=lambda method: method.order)
    return _arranged(title, numbers, notes, sorted(scenarios, key=Scenario.order), ordered, third, show_load)


def _arranged(
    title: str,
    numbers: pd.DataFrame,
    notes: list[str],
    scenarios: list[Scenario],
    methods: list[Method],
    third: dict[Scenario, str] | None,
    show_load: bool,
) -> Table:
    cells = {(row["algorithm"], row["scenario"]): row for row in numbers.to_dict("records")}
    best = _best_scores(numbers)
    blocks = []
    above = [method for method in methods if method.name in ABOVE]
    for members in (above, *([m for m in methods if m.group == group and m not in above] for group in GROUP_ORDER)):
        rows = []
        for method in members:
            label = f"{method.label} ({method.load}{TIMES})" if show_load and method.load > 1 else method.label
            rows.append(Row(label, tuple(_cell(cells.get((method.name, one)), best) for one in scenarios)))
        if rows:
            blocks.append(tuple(rows))
    header = scenario_header(scenarios)
    if third:
        header = (*header, tuple((third.get(scenario, ""), 1) for scenario in scenarios))
    return Table(title, header, tuple(blocks), tuple(notes), tidy(numbers))


def _best_scores(numbers: pd.DataFrame) -> dict[tuple[str, Scenario], float]:
    numbers = numbers[[method.group != Group.REFERENCE for method in numbers["method"]]]
    contests = numbers["method"].map(lambda method: method.contest)
    best = numbers.groupby([contests, "scenario"], sort=False)["score"].max()
    return {key: float(value) for key, value in best.dropna().items()}  # type: ignore[misc]


def _cell(row: dict[Any, Any] | None, best: dict[tuple[str, Scenario], float]) -> Cell:
    if row is None:
        return Cell(MISSING)
    winner = best.get((row["method"].contest, row["scenario"]))
    return Cell(row["text"], is_bold=winner is not None and row["score"] == winner)


def scenario_header(scenarios: list[Scenario]) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Two header rows: what neighbouring columns share, then what tells them apart, as the paper writes them."""
    upper: list[tuple[str, int]] = []
    lower: list[tuple[str, int]] = []
    start = 0
    while start < len(scenarios):
        same = [scenario for scenario in scenarios[start:] if scenario.data == scenarios[start].data]
        start += len(same)
        runs = _shared_runs(same)
        if any(len(run) == 1 for run in runs) and len(same) > 1:
            upper.append((f"{same[0].data_label}, (ω, S)", len(same)))
            lower += [(scenario.pair_label, 1) for scenario in same]
            continue
        for run in runs:
            if len({scenario.cohort_size for scenario in run}) == 1:
                upper.append((f"{run[0].data_label}, S={run[0].cohort_size}", len(run)))
                lower += [(scenario.skew_label, 1) for scenario in run]
            else:
                upper.append((f"{run[0].data_label}, {run[0].skew_label}", len(run)))
                lower += [(f"S={scenario.cohort_size}", 1) for scenario in run]
    return tuple(upper), tuple(lower)


def _shared_runs(scenarios: list[Scenario]) -> list[list[Scenario]]:
    """Neighbours cut, greedily from the left, into stretches that share S or share the skew."""
    stretches: list[list[Scenario]] = []
    for scenario in scenarios:
        extended = [*stretches[-1], scenario] if stretches else []
        if extended and (len({one.cohort_size for one in extended}) == 1 or len({one.skew for one in extended}) == 1):
            stretches[-1] = extended
        else:
            stretches.append([scenario])
    return stretches


def tidy(numbers: pd.DataFrame) -> pd.DataFrame:
    """Cells with one column per part of the scenario, for CSV."""
    parts = {"data": "data", "skew": "skew", "cohort_size": "cohort_size"}
    columns = {
        name: [getattr(scenario, attribute) for scenario in numbers["scenario"]] for name, attribute in parts.items()
    }
    kept = [name for name in numbers.columns if name not in ("algorithm", "method", "scenario", "score")]
    return pd.DataFrame({"algorithm": numbers["algorithm"], **columns, **{name: numbers[name] for name in kept}})
