"""Small sweeps, and that each of their trials has one result."""

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from fl_platform.sweeps.definition import Sweep
from fl_platform.sweeps.ledger import Entry
from tests.sweeps.small_sweeps import entries_of, quick_sweep


def make(directory: Path, trials: int, *args: str, **content: Any) -> tuple[Sweep, list[str]]:
    """A sweep over seeds, and the arguments that launch it."""
    directory.mkdir(parents=True, exist_ok=True)
    seeds = {"seed": {"values": list(range(trials))}}
    sweep = quick_sweep(directory, seeds, "checkpoint.every=1", *args, **content)
    return sweep, ["sweep", "run", str(sweep.source), *sweep.overrides]


def check_exactly_once(sweep: Sweep, trials: int) -> list[Entry]:
    """One result a trial: in the ledger, on the disk, and as figures."""
    entries = entries_of(sweep)
    assert [entry.state for entry in entries] == ["finished"] * trials
    ends = Counter(event["trial"] for event in events(sweep.directory) if event["kind"] == "finished")
    assert ends == dict.fromkeys(range(trials), 1)
    results = {path.parent.name: json.loads(path.read_text()) for path in sweep.output.glob("*/result.json")}
    assert results.keys() == {entry.run_id for entry in entries}
    for entry in entries:
        assert entry.summary["fingerprint"] == results[entry.run_id or ""]["fingerprint"]
    return entries


def events(directory: Path) -> list[dict[str, Any]]:
    database = sqlite3.connect(directory / "ledger.sqlite")
    try:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM events ORDER BY seq")]
    finally:
        database.close()


def rounds_of(sweep: Sweep) -> int:
    return sum(path.read_text().count("\n") for path in sweep.output.glob("*/attempts/*/rounds.jsonl"))
