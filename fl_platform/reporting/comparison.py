"""Our numbers beside the paper's, and algorithms beside a reference, seed by seed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fl_platform.errors import UserError, unknown_name
from fl_platform.paper import tables as paper_tables
from fl_platform.paper.methods import plain
from fl_platform.paper.scenarios import Scenario
from fl_platform.reporting.cell_numbers import cell_crossings, cell_values
from fl_platform.reporting.cells import cell_runs
from fl_platform.reporting.layout import MISSING, NOT_REACHED, Cell, Note, Row, Table, layout
from fl_platform.reporting.measures import MEASURES, per_run
from fl_platform.reporting.selection import Selection
from fl_platform.reporting.statistics import bootstrap_interval, spearman
from fl_platform.reporting.tables import (
    PAPER_SEEDS,
    check_ddof,
    check_level,
    run_notes,
    scenario_targets,
    statistic_text,
    target_text,
)
from fl_platform.runs.frames import Runs


def beside_table1(runs: Runs, select: Selection = "only", seeds: int = PAPER_SEEDS, ddof: int = 1) -> Table:
    """Top accuracy: ours, the paper's, the difference, and whether it is within 2 of the paper's std."""
    check_ddof(ddof)
    measure = MEASURES["top_accuracy"]
    cells = cell_runs(runs, select)
    ours = cell_values(cells, per_run(runs, "top_accuracy")["top_accuracy"], measure)
    if not ours.empty:
        ours["text"] = [statistic_text(row, measure, seeds, ddof) for row in ours.to_dict("records")]
    pairs = _pairs(ours, paper_tables.table1().rename(columns={"mean": "paper", "std": "paper_std"}))
    pairs["difference"] = pairs["mean"] - pairs["paper"]
    pairs["is_within_2_std"] = (pairs["difference"].abs() <= 2 * pairs["paper_std"]).where(pairs["mean"].notna())
    pairs["paper_text"] = [
        f"{mean:.2f}±{std:.2f}" for mean, std in zip(pairs["paper"], pairs["paper_std"], strict=True)
    ]
    header = (("ours", 1), ("paper", 1), ("ours - paper", 1), ("within ±2 std of the paper", 1))
    notes = [f"ours: ± is the standard deviation over seeds (ddof={ddof}); the paper does not state its ddof."]
    return _sections(
        "Top test accuracy (%) beside the paper's Table 1", header, pairs, "mean", [*notes, *run_notes(runs, cells)]
    )


def beside_table2(runs: Runs, select: Selection = "only", seeds: int = PAPER_SEEDS) -> Table:
    """Rounds to the paper's target accuracy: ours, the paper's and their ratio."""
    cells = cell_runs(runs, select)
    theirs = paper_tables.table2().rename(columns={"rounds": "paper"}).drop(columns="target")
    targets = scenario_targets(runs, cells, None)
    ours = cell_crossings(runs, cells, targets)
    if not ours.empty:
        ours["text"] = [target_text(row, "rounds", seeds) for row in ours.to_dict("records")]
    pairs = _pairs(ours, theirs)
    pairs["difference"] = pairs["rounds"] - pairs["paper"]
    pairs["paper_text"] = [NOT_REACHED if np.isnan(value) else f"{value:,.0f}" for value in pairs["paper"]]
    header = (("ours", 1), ("paper", 1), ("ours - paper", 1))
    notes = ["Both are read off the seed-averaged accuracy curve."]
    for column in ("rounds", "paper"):
        known = pairs["n"] > 0 if column == "rounds" else pd.Series(True, index=pairs.index)
        pairs[f"{column}_rank"] = pairs[column].fillna(np.inf).where(known)
    title = "Rounds to reach the target accuracy beside the paper's Table 2"
    return _sections(title, header, pairs, "rounds", [*notes, *run_notes(runs, cells)])


def _pairs(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """The cells that both have."""
    if ours.empty:
        raise UserError("no finished run: there is nothing to set beside the paper")
    pairs = ours.merge(theirs, on=["algorithm", "scenario"], how="inner", validate="one_to_one")
    if pairs.empty:
        raise UserError(
            "none of these runs is a cell of the paper's tables (data set, omega, cohort_size and algorithm must match)"
        )
    return pairs


def _sections(
    title: str, header: tuple[tuple[str, int], ...], pairs: pd.DataFrame, value: str, notes: "Sequence[str | Note]"
) -> Table:
    """One block per scenario; its last row is the rank correlation of the algorithms."""
    blocks = []
    correlations = []
    for scenario in sorted(set(pairs["scenario"]), key=Scenario.order):
        own = pairs[pairs["scenario"] == scenario]
        records = sorted(own.to_dict("records"), key=lambda record: record["method"].order)
        rows = [
            Row(f"{scenario.label}: {record['method'].label}", _pair_cells(record, len(header))) for record in records
        ]
        ranked = f"{value}_rank" if f"{value}_rank" in own else value
        other = "paper_rank" if "paper_rank" in own else "paper"
        known = own[ranked].notna() & own[other].notna()
        rho = spearman(own[ranked].to_numpy(float), own[other].to_numpy(float))
        correlations.append({"scenario": scenario.label, "spearman": rho, "algorithms": int(known.sum())})
        texts = (
            f"rho={rho:.2f}" if np.isfinite(rho) else "undefined",
            f"{known.sum()} algorithms",
            *[""] * (len(header) - 2),
        )
        rows.append(Row(f"{scenario.label}: Spearman rank correlation", tuple(map(Cell, texts))))
        blocks.append(tuple(rows))
    if any(scenario.data == "cifar100" for scenario in pairs["scenario"]):
        notes = [*notes, paper_tables.CIFAR100_NOTE]
    numbers = pairs.assign(scenario=[scenario.label for scenario in pairs["scenario"]])
    numbers = numbers.drop(
        columns=[name for name in numbers if name in ("method", "bold", "rounds_rank", "paper_rank")]
    )
    numbers = numbers.merge(pd.DataFrame(correlations), on="scenario")
    return Table(title, (header,), tuple(blocks), tuple(notes), numbers, "Scenario: algorithm")


def _pair_cells(record: dict[Any, Any], width: int) -> tuple[Cell, ...]:
    difference = record["difference"]
    is_count = "rounds" in record
    shown = "" if np.isnan(difference) else f"{difference:+,.0f}" if is_count else f"{difference:+.2f}"
    cells = [Cell(record["text"]), Cell(record["paper_text"]), Cell(shown)]
    if width == 4:
        within = record["is_within_2_std"]
        cells.append(Cell("" if pd.isna(within) else "yes" if within else "no"))
    return tuple(cells)


def significance_table(
    runs: Runs, reference: str, value: str = "top_accuracy", select: Selection = "only", level: float = 0.95
) -> Table:
    """Mean difference to a reference algorithm over the seeds both have, with a bootstrap interval."""
    if value not in MEASURES:
        raise unknown_name("value", value, MEASURES)
    check_level(level)
    measure = MEASURES[value]
    cells = cell_runs(runs, select)
    values = per_run(runs, value)[value] * measure.scale
    names = {cell.method.name: cell.method for cell in cells}
    named = next((method for name, method in names.items() if plain(reference) == plain(name)), None)
    base = {cell.scenario: cell for cell in cells if cell.method == named}
    if named is None:
        present = ", ".join(sorted(names))
        raise UserError(f"reference={reference} has no finished run; there is {present or 'none'}")
    rows = []
    for cell in cells:
        if cell.scenario not in base or cell is base[cell.scenario]:
            continue
        other = base[cell.scenario]
        shared = sorted(cell.seeds.keys() & other.seeds.keys())
        first = values.reindex([cell.seeds[seed] for seed in shared]).to_numpy(float)
        second = values.reindex([other.seeds[seed] for seed in shared]).to_numpy(float)
        differences = (first - second)[np.isfinite(first - second)]
        low, high = bootstrap_interval(differences, level)
        mean = float(differences.mean()) if len(differences) else float("nan")
        row = {
            "algorithm": cell.method.name,
            "method": cell.method,
            "scenario": cell.scenario,
            "n": len(differences),
        }
        rows.append(
            row
            | {
                "difference": mean,
                "low": low,
                "high": high,
                "score": np.nan,
                "text": _interval_text(mean, low, high, len(differences)),
            }
        )
    label = named.label
    notes = [
        f"Difference to {label} over common seeds, with the {level:.0%} percentile bootstrap interval of the mean "
        "(n seeds); an interval from 3 seeds describes, it does not prove."
    ]
    return layout(f"{measure.label}: difference to {label}", pd.DataFrame(rows), [*notes, *run_notes(runs, cells)])


def _interval_text(mean: float, low: float, high: float, count: int) -> str:
    if count == 0:
        return MISSING
    interval = f" [{low:+.2f}, {high:+.2f}]" if count > 1 else ""
    return f"{mean:+.2f}{interval} (n={count})"
