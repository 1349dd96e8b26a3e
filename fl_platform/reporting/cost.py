"""What a set of runs cost: how many, how they ended, and the time they took."""

import pandas as pd

from fl_platform.paper.scenarios import Scenario
from fl_platform.reporting.cells import scenarios_of
from fl_platform.reporting.layout import Cell, Row, Table
from fl_platform.reporting.measures import per_run
from fl_platform.runs.frames import Runs
from fl_platform.runs.status import ENDED, STOPPED

_COUNTS = ("runs", *(status.value for status in ENDED), STOPPED, "rounds")


def cost_table(runs: Runs) -> Table:
    """Every run by scenario; hours are those of the rounds, without evaluation, start-up and logging."""
    measures = per_run(runs, "rounds", "total_seconds").fillna(0).to_numpy()
    spent: dict[Scenario, dict[str, float]] = {}
    for scenario, status, (rounds, seconds) in zip(scenarios_of(runs.runs), runs.runs["status"], measures, strict=True):
        sums = spent.setdefault(scenario, dict.fromkeys((*_COUNTS, "hours"), 0.0))
        ending = status if status in ENDED else STOPPED
        for name, value in (("runs", 1), (ending, 1), ("rounds", rounds), ("hours", seconds / 3600)):
            sums[name] += value
    numbers = pd.DataFrame([{"scenario": place.label} | spent[place] for place in sorted(spent, key=Scenario.order)])
    total = {name: sum(sums[name] for sums in spent.values()) for name in (*_COUNTS, "hours")}
    rows = [_row(place.label, spent[place]) for place in sorted(spent, key=Scenario.order)]
    header = tuple((name, 1) for name in (*_COUNTS, "hours"))
    notes = ("Stopped: ended early by a search, interrupted or crashed.",)
    return Table("Cost", (header,), (tuple(rows), (_row("all", total),)), notes, numbers, "Scenario")


def _row(label: str, sums: dict[str, float]) -> Row:
    return Row(label, (*(Cell(f"{sums[name]:.0f}") for name in _COUNTS), Cell(f"{sums['hours']:.1f}")))
