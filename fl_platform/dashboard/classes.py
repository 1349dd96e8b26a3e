"""Accuracy per class of a run, at its newest evaluation."""

from pathlib import Path
from typing import Any

from fl_platform.reporting.shown import finite
from fl_platform.runs import metrics
from fl_platform.runs.reader import read_directory
from fl_platform.runs.record import RunRecord


def class_accuracy(record: RunRecord) -> list[float | None]:
    """Return one value per class; none where the run evaluated none.

    The dashboard follows runs without their lists, so those of a run directory are read here.
    """
    if metrics.CLASS_ACCURACY not in record.history.column_names and Path(record.source).is_dir():
        record = read_directory(Path(record.source))
    if metrics.CLASS_ACCURACY not in record.history.column_names:
        return []
    known = [values for values in record.history[metrics.CLASS_ACCURACY].to_pylist() if values]
    return _plain(known[-1]) if known else []


def _plain(values: Any) -> list[float | None]:
    return [finite(value) for value in values] if isinstance(values, list) else []
