"""Sweeps as their ledgers have them, for a browser: counts, best trial, time left, and which run is which trial."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fl_platform.errors import UserError, visible
from fl_platform.reporting.shown import finite
from fl_platform.runs.status import RunStatus
from fl_platform.sweeps.definition import find_sweep
from fl_platform.sweeps.ledger import Entry, Ledger
from fl_platform.sweeps.states import TrialState
from fl_platform.sweeps.status import status_of


@dataclass(frozen=True)
class TrialOfRun:
    """Where a run stands in a sweep. ``status`` is what the ledger says of the run, ``state`` the trial's own state:
    a trial that early termination ended is ``stopped``."""

    sweep: str
    number: int
    status: RunStatus
    log: Path
    state: TrialState


@dataclass(frozen=True)
class ShownSweep:
    """``values`` is what the browser is sent."""

    values: dict[str, Any]
    trials: dict[str, TrialOfRun] = field(default_factory=dict)


def read_sweep(directory: Path) -> ShownSweep:
    """One sweep directory; a ledger that cannot be read is shown as such."""
    try:
        sweep, _ = find_sweep(directory)
        with Ledger(directory, read_only=True) as ledger:
            entries = ledger.entries()
            at_most = max(len(entries), sweep.run_cap or 0)
            status = status_of(sweep, ledger, retries=ledger.retries(), at_most=at_most)
            alive = {
                entry.launcher
                for entry in entries
                if entry.state is TrialState.STARTED and ledger.is_alive(entry.launcher or "")
            }
    except (UserError, OSError, ValueError, KeyError) as error:
        return ShownSweep(
            {"name": visible(directory.name), "error": visible(error), "counts": {}, "total": 0, "done": 0}
        )
    best = status.best
    values = {
        "name": visible(directory.name),
        "method": visible(sweep.method),
        "counts": status.counts,
        "total": status.total,
        "done": status.done,
        "seconds_left": finite(status.seconds_left),
        "is_live": bool(alive),
        "metric": visible(status.metric),
        "maximises": sweep.maximises or sweep.metric is None,
        "best": None
        if best is None
        else {"run": best.run_id, "value": finite(best.summary[status.metric]), "point": _point(best.params)},
        "failures": [f"trial {entry.number}: {visible(entry.data.get('message', ''))}" for entry in status.failed[:20]],
    }
    return ShownSweep(values, dict(_trials(directory, entries, alive)))


def _point(params: dict[str, Any]) -> str:
    return visible(", ".join(f"{key}={value}" for key, value in params.items()))


def _trials(directory: Path, entries: Iterable[Entry], alive: set[str | None]) -> Iterable[tuple[str, TrialOfRun]]:
    for entry in entries:
        if entry.run_id is None:
            continue
        is_lost = entry.state is TrialState.STARTED and entry.launcher not in alive
        status = RunStatus.CRASHED if is_lost else entry.state.run_status
        log = directory / "logs" / f"{entry.number:05d}-{entry.run_id}.log"
        yield entry.run_id, TrialOfRun(visible(directory.name), entry.number, status, log, entry.state)
