"""What a table is, and the paper's layout: methods in blocks, scenarios as columns, the best of a group bold."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fl_platform.paper.methods import ABOVE, METHODS, Group, Method
from fl_platform.paper.scenarios import PAPER_SCENARIOS, Scenario

MISSING = "missing"
NOT_REACHED = "--"
TIMES = "\u00d7"
GROUP_ORDER = (*(group for group in Group if group != Group.REFERENCE), Group.REFERENCE)
BOLD = "Bold: the best of its group; FedAvg counts among the methods that change the workers."


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    is_bold: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Note:
    """A note that names runs or files; a table for a paper has ``in_paper`` in its place, or nothing."""

    text: str
    in_paper: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Table:
    """``header`` rows are (text, columns spanned); ``blocks`` of rows are set apart; ``numbers`` is tidy.

    ``name`` is what files and labels are called after.
    """

    title: str
    header: tuple[tuple[tuple[str, int], ...], ...]
    blocks: tuple[tuple[Row, ...], ...]
    notes: "tuple[str | Note, ...]" = ()
    numbers: pd.DataFrame = field(default_factory=pd.DataFrame)
    corner: str = "Algorithm"
    name: str = ""


def layout(
    title: str,
    numbers: pd.DataFrame,
    notes: "Sequence[str | Note]",
    third: dict[Scenario, str] | None = None,
    show_load: bool = False,
    complete: bool = False,
    bold: set[tuple[str, Scenario]] | None = None,
) -> Table:
    """Cells (algorithm, method, scenario, text, score) in the paper's layout, the best score of each group bold.

    ``complete`` adds the paper's methods and scenarios of which there is no run. ``bold`` names the cells (algorithm,
    scenario) to print bold instead of the best.
    """
    if numbers.empty:
        return Table(title, (), (), ("No finished run.", *notes))
    scenarios, methods = set(numbers["scenario"]), set(numbers["method"])
    if complete:
        scenarios |= set(PAPER_SCENARIOS)
        methods |= set(METHODS.values())
    ordered = sorted(methods, key=lambda method: method.order)
    return _arranged(title, numbers, notes, sorted(scenarios, key=Scenario.order), ordered, third, show_load, bold)


def _arranged(
    title: str,
    numbers: pd.DataFrame,
    notes: "Sequence[str | Note]",
    scenarios: list[Scenario],
    methods: list[Method],
    third: dict[Scenario, str] | None,
    show_load: bool,
    bold: set[tuple[str, Scenario]] | None,
) -> Table:
    cells = {(row["algorithm"], row["scenario"]): row for row in numbers.to_dict("records")}
    best = _best_scores(numbers)
    chosen = {place for place, row in cells.items() if _is_best(row, best)} if bold is None else bold
    blocks = []
    above = [method for method in methods if method.name in ABOVE]
    for members in (above, *([m for m in methods if m.group == group and m not in above] for group in GROUP_ORDER)):
        rows = []
        for method in members:
            label = f"{method.label} ({method.load}{TIMES})" if show_load and method.load > 1 else method.label
            places = [(method.name, scenario) for scenario in scenarios]
            texts = [cells[place]["text"] if place in cells else MISSING for place in places]
            rows.append(
                Row(label, tuple(Cell(text, place in chosen) for text, place in zip(texts, places, strict=True)))
            )
        if rows:
            blocks.append(tuple(rows))
    if best and bold is None:
        notes = [*notes, BOLD]
    header = scenario_header(scenarios)
    if third:
        header = (*header, tuple((third.get(scenario, ""), 1) for scenario in scenarios))
    return Table(title, header, tuple(blocks), tuple(notes), tidy(numbers))


def _best_scores(numbers: pd.DataFrame) -> dict[tuple[str, Scenario], float]:
    """The best score of each group of methods in each scenario; none where there is only one to choose from."""
    numbers = numbers[[method.group != Group.REFERENCE for method in numbers["method"]]]
    numbers = numbers[numbers["n"] > 0]
    contests = numbers["method"].map(lambda method: method.contest)
    scores = numbers.groupby([contests, "scenario"], sort=False)["score"].agg(["max", "size"])
    return {key: float(best) for key, best in scores.loc[scores["size"] > 1, "max"].dropna().items()}  # type: ignore[misc]


def _is_best(row: dict[Any, Any], best: dict[tuple[str, Scenario], float]) -> bool:
    winner = best.get((row["method"].contest, row["scenario"]))
    return winner is not None and row["score"] == winner


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
