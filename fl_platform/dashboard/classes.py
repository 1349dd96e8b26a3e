"""Accuracy per class of a run, at its newest evaluation."""

import json
from pathlib import Path
from typing import Any

from fl_platform.reporting.shown import finite
from fl_platform.runs import metrics
from fl_platform.runs.wandb_file import LoggedRun

_TAIL = 1 << 20  # bytes: rows of a thousand classes are a few kilobytes


def class_accuracy(log: LoggedRun) -> list[float | None]:
    """One value per class; empty where the run evaluated none. Directories keep them in rounds.jsonl only."""
    if metrics.CLASS_ACCURACY in log.history.column_names:
        known = [values for values in log.history[metrics.CLASS_ACCURACY].to_pylist() if values]
        return _plain(known[-1]) if known else []
    attempts = sorted(Path(log.source).glob("attempts/[0-9]*/rounds.jsonl"))
    return _last_in_file(attempts[-1]) if attempts else []


def _last_in_file(path: Path) -> list[float | None]:
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - _TAIL))
        lines = file.read().split(b"\n")
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue  # a row that is being written, or the end of one that the tail cut
        values = row.get(metrics.CLASS_ACCURACY) if isinstance(row, dict) else None
        if isinstance(values, list) and values:
            return _plain(values)
    return []


def _plain(values: Any) -> list[float | None]:
    return [finite(value) for value in values] if isinstance(values, list) else []
