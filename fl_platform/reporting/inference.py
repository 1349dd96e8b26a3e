"""Tables that say what the seeds support: paired differences, aggregates over scenarios, ranks, seeds needed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fl_platform.errors import UserError, unknown_name
from fl_platform.paper.methods import Method, plain
from fl_platform.paper.scenarios import Scenario
from fl_platform.reporting import statistics
from fl_platform.reporting.cells import CellRuns, cell_runs
from fl_platform.reporting.layout import Cell, Row, Table, layout
from fl_platform.reporting.measures import MEASURES, Measure, per_run
from fl_platform.reporting.selection import Selection
from fl_platform.reporting.statistics import Numbers
from fl_platform.reporting.tables import check_level, run_notes
from fl_platform.runs.frames import Runs


@dataclass(frozen=True)
class Comparison:
    """The values of every cell by seed, in the units of tables, larger is better after multiplication with ``sign``."""

    cells: list[CellRuns]
    values: dict[tuple[str, Scenario], dict[int, float]]
    measure: Measure
    sign: float

    @property
    def methods(self) -> list[Method]:
        """In the order of tables."""
        return sorted({cell.method.name: cell.method for cell in self.cells}.values(), key=lambda one: one.order)

    @property
    def scenarios(self) -> list[Scenario]:
        """In the order of tables."""
        return sorted({cell.scenario for cell in self.cells}, key=Scenario.order)

    def differences(self, method: Method, reference: Method, scenario: Scenario) -> Numbers:
        """The differences to the reference over the seeds that both have."""
        first = self.values.get((method.name, scenario), {})
        second = self.values.get((reference.name, scenario), {})
        return np.array([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())], dtype=float)

    def differences_to(self, reference: Method) -> Iterator[tuple[CellRuns, Numbers]]:
        """Every cell of another method, in scenarios of the reference, with its paired differences to it."""
        for cell in self.cells:
            if cell.method != reference and self.values.get((reference.name, cell.scenario)):
                yield cell, self.differences(cell.method, reference, cell.scenario)

    def runs_of(self, method: Method, scenario: Scenario) -> Numbers:
        """The values of a cell, larger better."""
        return self.sign * np.array(list(self.values.get((method.name, scenario), {}).values()), dtype=float)

    def reference(self, name: str) -> Method:
        """The method of this name; UserError where no finished run is of it."""
        found = next((method for method in self.methods if plain(method.name) == plain(name)), None)
        if found is None:
            present = ", ".join(method.name for method in self.methods)
            raise UserError(f"reference={name} has no finished run; there is {present or 'none'}")
        return found


def compared(runs: Runs, value: str, select: Selection) -> Comparison:
    """The cells of some runs with a value for each seed."""
    if value not in MEASURES:
        raise unknown_name("value", value, MEASURES)
    measure, cells = MEASURES[value], cell_runs(runs, select)
    numbers: dict[Any, float] = (per_run(runs, value)[value] * measure.scale).to_dict()
    values = {
        (cell.method.name, cell.scenario): {
            seed: numbers[run_id] for seed, run_id in cell.seeds.items() if np.isfinite(numbers[run_id])
        }
        for cell in cells
    }
    return Comparison(cells, values, measure, 1.0 if measure.is_better_larger else -1.0)


def paired_table(
    runs: Runs, reference: str, value: str = "top_accuracy", select: Selection = "only", level: float = 0.95
) -> Table:
    """Differences to a reference method seed by seed: mean, Student's t interval, p value of the paired t test."""
    check_level(level)
    found = compared(runs, value, select)
    base = found.reference(reference)
    rows = []
    for cell, each in found.differences_to(base):
        mean = float(each.mean()) if len(each) else float("nan")
        low, high = statistics.t_interval(each, level)
        record = {"algorithm": cell.method.name, "method": cell.method, "scenario": cell.scenario, "n": len(each)}
        record |= {"difference": mean, "low": low, "high": high, "p": statistics.t_p_value(each), "score": np.nan}
        rows.append(record | {"text": _difference_text(mean, low, high, len(each), found.measure.decimals)})
    notes = [
        f"Difference to {base.label} over the seeds both have: mean and Student's {level:.0%} interval of n paired "
        "differences. An asterisk marks an interval without zero. Each interval stands for itself: of many such "
        f"comparisons of equal methods, {1 - level:.0%} are marked by chance."
    ]
    title = f"{found.measure.label}: paired difference to {base.label}"
    return layout(title, pd.DataFrame(rows), [*notes, *run_notes(runs, found.cells)])


def _difference_text(mean: float, low: float, high: float, count: int, decimals: int) -> str:
    if count == 0:
        return "missing"
    if count == 1:
        return f"{mean:+.{decimals}f} (n=1)"
    mark = "*" if low > 0 or high < 0 else ""
    return f"{mean:+.{decimals}f}{mark} [{low:+.{decimals}f}, {high:+.{decimals}f}] (n={count})"


def aggregate_table(
    runs: Runs, reference: str, value: str = "top_accuracy", select: Selection = "only", level: float = 0.95
) -> Table:
    """Over all scenarios: interquartile mean with its interval, and probability of improvement over a reference."""
    check_level(level)
    found = compared(runs, value, select)
    base = found.reference(reference)
    complete = [place for place in found.scenarios if all(found.values.get((m.name, place)) for m in found.methods)]
    if not complete:
        raise UserError("no scenario has a finished run of every method; narrow the methods or scenarios with where")
    rows, numbers = [], []
    for method in found.methods:
        values = [found.runs_of(method, place) for place in complete]
        middle = statistics.interquartile_mean(values) * found.sign
        low, high = sorted(found.sign * bound for bound in statistics.stratified_interval(values, level))
        others = [found.runs_of(base, place) for place in complete]
        better = statistics.probability_of_improvement(values, others) if method != base else float("nan")
        interval = f" [{low:.2f}, {high:.2f}]" if np.isfinite(low) else ""
        share = f"{better:.2f}" if np.isfinite(better) else ""
        rows.append(Row(method.label, (Cell(f"{middle:.2f}{interval}"), Cell(share))))
        record = {"algorithm": method.name, "runs": sum(map(len, values)), "interquartile_mean": middle}
        numbers.append(record | {"low": low, "high": high, "probability_of_improvement": better})
    notes = [
        f"Over the scenarios in which every method has a finished run: {len(complete)} of {len(found.scenarios)}. "
        f"Interquartile mean: of the middle half of the runs; {level:.0%} stratified bootstrap interval. Probability "
        f"of improvement: that a run beats one of {base.label}, averaged over scenarios (Agarwal et al. 2021)."
    ]
    header = ((("interquartile mean", 1), (f"P(better than {base.label})", 1)),)
    title = f"{found.measure.label}: aggregates over scenarios"
    return Table(title, header, (tuple(rows),), (*notes, *run_notes(runs, found.cells)), pd.DataFrame(numbers))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class Ranking:
    """Average ranks over scenarios, with Friedman's p value and Nemenyi's critical difference."""

    methods: list[Method]
    ranks: Numbers
    num_scenarios: int
    p_value: float
    difference: float
    num_left_out: int
    cells: list[CellRuns]

    @property
    def counted(self) -> str:
        """``3 scenarios``, or ``3 of 5 scenarios`` where some method has no run in the others."""
        every = self.num_scenarios + self.num_left_out
        return f"{f'{self.num_scenarios} of ' if self.num_left_out else ''}{_counted(every, 'scenario')}"


def ranking(runs: Runs, value: str = "top_accuracy", select: Selection = "only", level: float = 0.95) -> Ranking:
    """Rank the methods in each scenario by their means; UserError for fewer than two methods or scenarios.

    Scenarios in which a method has no finished run are left out.
    """
    check_level(level)
    found = compared(runs, value, select)
    methods = found.methods
    complete = [place for place in found.scenarios if all(found.values.get((m.name, place)) for m in methods)]
    if len(methods) < 2 or len(complete) < 2:
        raise UserError(
            f"ranks need at least two methods and two scenarios in which all have a finished run; there are "
            f"{_counted(len(methods), 'method')} and {_counted(len(complete), 'such scenario')}"
        )
    means = np.array([[found.runs_of(method, place).mean() for method in methods] for place in complete])
    scores = np.round(means, found.measure.decimals)  # what prints alike ties
    difference = statistics.critical_difference(len(methods), len(complete), level)
    ranks, p_value = statistics.average_ranks(scores), statistics.friedman_p_value(scores)
    num_left_out = len(found.scenarios) - len(complete)
    return Ranking(methods, ranks, len(complete), p_value, difference, num_left_out, found.cells)


def rank_table(runs: Runs, value: str = "top_accuracy", select: Selection = "only", level: float = 0.95) -> Table:
    """Average ranks over scenarios with Friedman's test and Nemenyi's critical difference."""
    found = ranking(runs, value, select, level)
    best = float(found.ranks.min())
    order = np.argsort(found.ranks, kind="stable")
    rows, numbers = [], []
    for place in order:
        method, rank = found.methods[place], float(found.ranks[place])
        is_close = rank - best <= found.difference
        rows.append(Row(method.label, (Cell(f"{rank:.2f}"), Cell("yes" if is_close else "no"))))
        numbers.append({"algorithm": method.name, "average_rank": rank, "is_within_critical_difference": is_close})
    p_value = f"p = {found.p_value:.3g}" if np.isfinite(found.p_value) else "not defined"
    notes = (
        f"Ranks by the mean in each of {found.counted}, 1 is best; Friedman's test that "
        f"all methods are alike: {p_value}.",
        f"Nemenyi's critical difference at {level:.0%}: {found.difference:.2f}; closer ranks are not told apart.",
    )
    header = ((("average rank", 1), ("within the critical difference of the best", 1)),)
    title = f"{MEASURES[value].label}: average ranks over scenarios"
    return Table(title, header, (tuple(rows),), (*notes, *run_notes(runs, found.cells)), pd.DataFrame(numbers))


def power_table(
    runs: Runs,
    reference: str,
    value: str = "top_accuracy",
    select: Selection = "only",
    difference: float | None = None,
    power: float = 0.8,
    level: float = 0.95,
) -> Table:
    """How many seeds a paired t test would need to find the observed (or a given) difference to a reference."""
    if not 0 < power < 1:
        raise UserError(f"power={power} is not allowed; it must be between 0 and 1")
    check_level(level)
    found = compared(runs, value, select)
    base = found.reference(reference)
    rows = []
    for cell, each in found.differences_to(base):
        claimed = difference if difference is not None else float(each.mean()) if len(each) else float("nan")
        spread = float(each.std(ddof=1)) if len(each) > 1 else float("nan")
        seeds = statistics.seeds_needed(claimed, spread, power, level) if len(each) > 1 else None
        record = {"algorithm": cell.method.name, "method": cell.method, "scenario": cell.scenario, "n": len(each)}
        record |= {"difference": claimed, "spread": spread, "seeds": seeds or np.nan, "score": np.nan}
        shown = "needs 2 seeds" if len(each) < 2 else "no number of seeds" if seeds is None else f"{seeds:,}"
        text = f"{shown} ({claimed:+.2f}, std {spread:.2f}, n={len(each)})" if len(each) > 1 else shown
        rows.append(record | {"text": text})
    claim = "the observed mean difference" if difference is None else f"a difference of {difference:g}"
    notes = [
        f"Seeds with which a two-sided paired t test at {level:.0%} finds {claim} to {base.label} with probability "
        f"{power:g}, if the differences spread as they do over the n seeds there are (std); a spread from few seeds is "
        "itself uncertain."
    ]
    title = f"{found.measure.label}: seeds needed for a difference to {base.label}"
    return layout(title, pd.DataFrame(rows), [*notes, *run_notes(runs, found.cells)])
