"""Runs from anywhere as one tidy pair of frames: a row per run, and a row per run and round."""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from fl_platform.config.migrate import MOVED
from fl_platform.config.schema import flatten
from fl_platform.errors import UserError, did_you_mean
from fl_platform.runs.record import RunRecord
from fl_platform.runs.rounds import Rounds
from fl_platform.runs.sources import read
from fl_platform.runs.status import RunStatus

Source: TypeAlias = str | os.PathLike[str]
_NESTED = (list, dict)
CASE = "case"
"""Configuration key that a report adds to its runs: which of its cases they are of."""


@dataclass(frozen=True, repr=False)
class Runs:
    """``runs``: run_id, status, `config.<key>`, `summary.<key>`, ...; ``rounds``: run_id, round, the metrics.

    ``history`` has the rounds run by run. The frame of all of them is made when it is first asked for.
    """

    runs: pd.DataFrame
    history: Rounds = field(default_factory=Rounds)
    warnings: tuple[str, ...] = ()

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """A row per run and round."""
        return self.history.frame()

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in self.runs["status"].value_counts().items())
        return f"<Runs: {counts or 'none'}; {len(self.history)} rounds in all; frames: summary, rounds>"

    def only(self, mask: "pd.Series[bool]") -> "Runs":
        """The runs where ``mask`` holds, with their rounds."""
        kept = self.runs[mask].reset_index(drop=True)
        return Runs(kept, self.history.only(kept["run_id"]), self.warnings)

    def finished(self) -> "Runs":
        """The runs that were trained to their last round."""
        return self.only(self.runs["status"] == RunStatus.FINISHED)

    @property
    def summary(self) -> pd.DataFrame:
        """One row per run for reading: run id, status, every configuration key and every measure by its own name."""
        own = [name for name in self.runs.columns if not name.startswith(("config.", "summary."))]
        names = {name: name for name in own}
        for column in self.runs.columns:
            names.setdefault(column.removeprefix("config.").removeprefix("summary."), column)
        return self.runs[list(names.values())].set_axis(list(names), axis=1)

    def config_keys(self) -> list[str]:
        return [name.removeprefix("config.") for name in self.runs.columns if name.startswith("config.")]


def load(sources: Source | Iterable[Source], cache_dir: Path | None = None) -> Runs:
    """Return every run of one source or of several.

    A source is a directory with runs or of one run (or the ``Result`` of one), a `.wandb` file, an archive, or
    `wandb:entity/project[/sweep]`. A run that several sources hold is taken from its own directory. Raises UserError
    for a source without runs.
    """
    given = [sources] if isinstance(sources, str | os.PathLike) else sources
    given = list(given) if isinstance(given, Iterable) else [given]
    for source in given:
        if not isinstance(source, str | os.PathLike):
            raise UserError(f"{source!r} is no source of runs; give a directory, an archive or wandb:entity/project")
    return to_frames(read(given, cache_dir))


def to_frames(records: list[RunRecord]) -> Runs:
    """The frames of merged records."""
    rows = []
    for record in records:
        row: dict[str, Any] = {
            "run_id": _leaf(record.run_id),
            "status": record.status.value if record.status else "",
            "ending": record.ending.value,
            "name": _leaf(record.name),
            "group": _leaf(record.group),
        }
        row |= {
            "sweep": _leaf(record.sweep),
            "tags": tuple(map(_leaf, record.tags)),
            "started": record.started,
            "exit_code": record.exit_code,
            "source": _leaf(record.source),
        }
        row |= {name: _leaf(value) for name, value in sorted(flatten(record.config, "config."))}
        row |= {
            name: _leaf(value)
            for name, value in sorted(flatten(record.summary, "summary."))
            if not name.startswith("summary._")
        }
        rows.append(row)
    runs = (
        _frame(rows) if rows else pd.DataFrame({name: pd.Series(dtype=str) for name in ("run_id", "status", "ending")})
    )
    history = Rounds.of({row["run_id"]: record.history for row, record in zip(rows, records, strict=True)})
    return Runs(runs, history, tuple(text for record in records for text in record.warnings))


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """A row a run. Keys that only some have keep their whole numbers, which pandas would turn into 10.0."""
    frame = pd.DataFrame(rows)
    for name in frame.columns[frame.dtypes == np.float64]:
        values = [row.get(name) for row in rows]
        if name.startswith("config.") and all(value is None or isinstance(value, int) for value in values):
            frame[name] = pd.Series(values, dtype=object)
    return frame


def _leaf(value: Any) -> Any:
    """A value a frame can hold: lists and empty mappings as JSON text, text without unpaired surrogates."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    return json.dumps(value) if isinstance(value, _NESTED) else value


def config_column(runs: Runs, key: str, where: str) -> str:
    """The column of a configuration key, or of an earlier name of it; UserError that names the nearest known key."""
    key = MOVED.get(key, key)
    if f"config.{key}" not in runs.runs.columns:
        known = runs.config_keys()
        ends = [name for name in known if name.endswith(f".{key}")]
        hint = f"; did you mean {' or '.join(ends)}?" if ends else did_you_mean(key, known)
        differ = [name for name in known if not name.startswith("run.") and runs.runs[f"config.{name}"].nunique() > 1]
        hint = hint or (f"; the runs differ in {', '.join(differ)}" if differ else "")
        raise UserError(f"{where} {key}: no run has this configuration key{hint}")
    return f"config.{key}"


def select(runs: Runs, conditions: Mapping[str, Any]) -> Runs:
    """The runs whose configuration has the given values; a list allows any of its values."""
    for key, wanted in conditions.items():
        column = runs.runs[config_column(runs, key, "where")]
        mask = has_value(column, wanted)
        if not mask.any():
            present = ", ".join(sorted(str(value) for value in column.dropna().unique()))
            raise UserError(f"where {key}={wanted}: no run has this value; there is {present or 'none'}")
        runs = runs.only(mask)
    return runs


def has_value(column: "pd.Series[Any]", wanted: Any) -> "pd.Series[bool]":
    """Where a column has the wanted value, or one of a list; null is a run without the key."""
    allowed = [_leaf(value) for value in (wanted if isinstance(wanted, list) else [wanted])]
    mask = column.isin([value for value in allowed if value is not None])
    return mask | column.isna() if None in allowed else mask


def with_cases(runs: Runs, cases: Mapping[str, Mapping[str, Any]]) -> Runs:
    """The runs with a further configuration key, ``case``: the name of the first whose conditions a run meets."""
    names = pd.Series(None, index=runs.runs.index, dtype=object)
    for name, conditions in cases.items():
        mask = names.isna()
        for key, wanted in conditions.items():
            mask &= has_value(runs.runs[config_column(runs, key, f"case {name}:")], wanted)
        names[mask] = name
    return dataclasses.replace(runs, runs=runs.runs.assign(**{f"config.{CASE}": names}))
