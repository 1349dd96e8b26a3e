"""Logs from anywhere as one tidy pair of frames: a row per run, and a row per run and round."""

import dataclasses
import json
import os
import re
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fl_platform.runs import metrics, liveness
from fl_platform.config.migrate import MOVED
from fl_platform.config.schema import flatten
from fl_platform.errors import UserError, did_you_mean
from fl_platform.runs import archive, cache
from fl_platform.runs.wandb_file import LoggedRun

FINISHED, DIVERGED, INTERRUPTED, CRASHED, RUNNING = "finished", "diverged", "interrupted", "crashed", "running"
ENDED = (FINISHED, DIVERGED)
_PROCESS = re.compile(r":(\d+) \[")  # thread and process of a line: "INFO    MainThread:4711 [wandb_setup.py"
_QUIET_SECONDS = 900.0  # a log without an exit record that was written this recently may still be running


@dataclass(frozen=True)
class Runs:
    """``runs``: run_id, status, `config.<key>`, `summary.<key>`, ...; ``rounds``: run_id, round, the metrics."""

    runs: pd.DataFrame
    rounds: pd.DataFrame
    warnings: tuple[str, ...] = ()

    def only(self, mask: "pd.Series[bool]") -> "Runs":
        """The runs where ``mask`` holds, with their rounds."""
        kept = self.runs[mask].reset_index(drop=True)
        return Runs(kept, self.rounds[self.rounds["run_id"].isin(kept["run_id"])].reset_index(drop=True), self.warnings)

    def finished(self) -> "Runs":
        return self.only(self.runs["status"] == FINISHED)

    def config_keys(self) -> list[str]:
        return [name.removeprefix("config.") for name in self.runs.columns if name.startswith("config.")]


def load(sources: Iterable[str | Path], cache_dir: Path | None = None) -> Runs:
    """Everything in ``sources``: directories and files of offline logs, archives, `wandb:entity/project[/sweep]`."""
    logs: list[LoggedRun] = []
    for source in sources:
        logs += read_source(source, cache_dir)
    return to_frames(merge(logs))


def read_source(source: str | Path, cache_dir: Path | None = None) -> list[LoggedRun]:
    if isinstance(source, str) and source.startswith("wandb:"):
        from fl_platform.runs import wandb_api

        return list(wandb_api.read_project(source.removeprefix("wandb:")))
    path = Path(source)
    if path.is_dir():
        found = find_logs(path)
        if not found:
            raise UserError(
                f"source {path} holds no W&B logs (*.wandb) and is no archive; give the output.dir of some runs"
            )
        return [with_status(cache.read(file, cache_dir)) for file in found]
    if not path.exists():
        raise UserError(f"source {path}: no such file or directory")
    if path.suffix == ".wandb":
        return [with_status(cache.read(path, cache_dir))]
    return archive.read(path)


def find_logs(directory: Path) -> list[Path]:
    """Every log below ``directory``; symbolic links such as W&B's `latest-run` are not followed."""
    places = os.walk(directory)
    return sorted(Path(place, name) for place, _, names in places for name in names if name.endswith(".wandb"))


def with_status(log: LoggedRun) -> LoggedRun:
    return dataclasses.replace(log, status=status_of(log))


def status_of(log: LoggedRun) -> str:
    """finished, diverged, interrupted, crashed or running."""
    if log.status:
        return log.status
    if log.exit_code is None:
        return RUNNING if is_alive(Path(log.source), log.host) else CRASHED
    said = log.summary.get(metrics.STATUS, FINISHED if log.exit_code == 0 else CRASHED)
    return said if said in (FINISHED, DIVERGED, INTERRUPTED) else CRASHED


def is_alive(path: Path, host: str) -> bool:
    """Whether the process that writes a log still runs; on another machine, whether the log is fresh."""
    attempts = (cache.default_directory(path).parent / path.stem.removeprefix("run-")).glob("attempts/[0-9]*")
    told = [alive for alive in map(liveness.is_alive, attempts) if alive is not None]
    if told:
        return any(told)
    try:
        if host == socket.gethostname():
            # of W&B's logs only this one is the run's alone: services that start in the same second share theirs
            with open(path.parent / "logs" / "debug.log", encoding="utf-8") as file:
                if found := _PROCESS.search(file.readline()):
                    return process_exists(int(found[1]))
    except (OSError, ValueError):
        pass
    try:
        return time.time() - path.stat().st_mtime < _QUIET_SECONDS
    except OSError:
        return False


def process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def merge(logs: Iterable[LoggedRun]) -> list[LoggedRun]:
    """One log per run id: an ended fragment before any other, then the newest, wins the run and each round."""
    fragments: dict[str, list[LoggedRun]] = {}
    for log in logs:
        log = dataclasses.replace(log, run_id=own_id(log), status=status_of(log))
        fragments.setdefault(log.run_id, []).append(log)
    return [_merge_fragments(fragments[run_id]) for run_id in sorted(fragments)]


def own_id(log: LoggedRun) -> str:
    """The hash of the configuration where the run recorded it: under `wandb agent` W&B's id is another."""
    run = log.config.get("run")
    recorded = run.get("id") if isinstance(run, dict) else None
    return recorded if isinstance(recorded, str) and recorded else log.run_id


def _merge_fragments(fragments: list[LoggedRun]) -> LoggedRun:
    ordered = sorted(fragments, key=lambda log: (log.status in ENDED, log.started))
    winner = ordered[-1]
    histories = [one_row_per_round(log.history) for log in ordered]
    kept, taken = [], pa.array([], pa.int64())
    for history in reversed(histories):
        rounds = history[metrics.ROUND].combine_chunks()
        kept.append(history.filter(pc.invert(pc.is_in(rounds, taken))))
        taken = pa.concat_arrays([taken, rounds])
    history = kept[0] if len(kept) == 1 else concatenate(kept).sort_by(metrics.ROUND)
    warnings = tuple(dict.fromkeys(text for log in ordered for text in log.warnings))
    return dataclasses.replace(winner, history=history, warnings=warnings)


def one_row_per_round(history: pa.Table) -> pa.Table:
    """Rows that have a round, in order; several rows of one round become one (the last value of each key)."""
    kind = history.schema.field(metrics.ROUND).type if metrics.ROUND in history.column_names else pa.null()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return pa.table({metrics.ROUND: pa.array([], pa.int64())})
    names = [name for name in history.column_names if not name.startswith("_")]  # W&B's own: _step, _runtime
    history = history.select(names).filter(pc.is_finite(history[metrics.ROUND]))
    rounds = history[metrics.ROUND].to_numpy().astype(np.int64)
    history = history.set_column(history.column_names.index(metrics.ROUND), metrics.ROUND, pa.array(rounds))
    if len(rounds) > 1 and (np.diff(rounds) <= 0).any():
        table = history.to_pandas().groupby(metrics.ROUND).last().reset_index()
        history = pa.Table.from_pandas(table, schema=history.schema, preserve_index=False)
    return history


def concatenate(tables: list[pa.Table]) -> pa.Table:
    """Rows of all tables; a column whose types disagree becomes JSON text."""
    kinds: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for column in table.schema:
            kinds.setdefault(column.name, set()).add(column.type)
    mixed = [name for name, found in kinds.items() if len(found) > 1]
    return pa.concat_tables([_as_text(table, mixed) for table in tables], promote_options="default")


def _as_text(table: pa.Table, names: list[str]) -> pa.Table:
    for name in names:
        if name in table.column_names and table[name].type != pa.string():
            texts = [None if value is None else json.dumps(value) for value in table[name].to_pylist()]
            table = table.set_column(table.column_names.index(name), name, pa.array(texts, pa.string()))
    return table


def to_frames(logs: list[LoggedRun]) -> Runs:
    rows = []
    for log in logs:
        row: dict[str, Any] = {
            "run_id": _leaf(log.run_id),
            "status": log.status,
            "name": _leaf(log.name),
            "group": _leaf(log.group),
        }
        row |= {
            "sweep": _leaf(log.sweep),
            "tags": tuple(map(_leaf, log.tags)),
            "started": log.started,
            "exit_code": log.exit_code,
            "source": _leaf(log.source),
        }
        row |= {f"config.{name}": _leaf(value) for name, value in sorted(flatten(log.config))}
        row |= {
            f"summary.{name}": _leaf(value) for name, value in sorted(flatten(log.summary)) if not name.startswith("_")
        }
        rows.append(row)
    tables = [log.history.add_column(0, "run_id", pa.repeat(_leaf(log.run_id), log.history.num_rows)) for log in logs]
    empty = pd.DataFrame({"run_id": pd.Series(dtype=str), metrics.ROUND: pd.Series(dtype=np.int64)})
    rounds = concatenate(tables).to_pandas() if tables else empty
    runs = _frame(rows) if rows else pd.DataFrame({"run_id": pd.Series(dtype=str), "status": pd.Series(dtype=str)})
    return Runs(runs, rounds, tuple(text for log in logs for text in log.warnings))


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
        return value.encode("utf-8", "replace").decode()
    return json.dumps(value) if isinstance(value, list | dict) else value


def config_column(runs: Runs, key: str, where: str) -> str:
    """The column of a configuration key, or of an earlier name of it; UserError that names the nearest known key."""
    key = MOVED.get(key, key)
    if f"config.{key}" not in runs.runs.columns:
        known = runs.config_keys()
        hint = did_you_mean(key, known) or f"; known: {', '.join(known)}"
        raise UserError(f"{where} {key}: no run has this configuration key{hint}")
    return f"config.{key}"


def select(runs: Runs, conditions: Mapping[str, Any]) -> Runs:
    """The runs whose configuration has the given values; a list allows any of its values."""
    for key, wanted in conditions.items():
        column = runs.runs[config_column(runs, key, "--where")]
        mask = has_value(column, wanted)
        if not mask.any():
            present = ", ".join(sorted(str(value) for value in column.dropna().unique()))
            raise UserError(f"--where {key}={wanted}: no run has this value; there is {present or 'none'}")
        runs = runs.only(mask)
    return runs


def has_value(column: "pd.Series[Any]", wanted: Any) -> "pd.Series[bool]":
    """Where a column has the wanted value, or one of a list; null is a run without the key."""
    allowed = [_leaf(value) for value in (wanted if isinstance(wanted, list) else [wanted])]
    mask = column.isin([value for value in allowed if value is not None])
    return mask | column.isna() if None in allowed else mask


def with_cases(runs: Runs, cases: Mapping[str, Mapping[str, Any]]) -> Runs:
    """The runs with a further configuration key, ``case``: the first whose conditions a run meets."""
    names = pd.Series(None, index=runs.runs.index, dtype=object)
    for name, conditions in cases.items():
        mask = names.isna()
        for key, wanted in conditions.items():
            mask &= has_value(runs.runs[config_column(runs, key, f"case {name}:")], wanted)
        names[mask] = name
    return dataclasses.replace(runs, runs=runs.runs.assign(**{"config.case": names}))
