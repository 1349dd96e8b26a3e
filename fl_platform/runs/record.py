"""The record of one run, whatever it was read from, and several records of one run made into one."""

import dataclasses
import functools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fl_platform.config.migrate import upgraded
from fl_platform.config.schema import flatten, known_keys
from fl_platform.config.targets import KEY, parse_target
from fl_platform.errors import UserError
from fl_platform.runs import metrics
from fl_platform.runs.status import Ending, RunStatus

PROVENANCE = "run"
"""Key of a record's configuration that holds what no option sets: run id, group, commit and package versions."""


@dataclass(frozen=True)
class RunRecord:
    """What one source says about one run; ``history`` has a row per logged row and a column per key."""

    source: str
    run_id: str
    entity: str = ""
    project: str = ""
    name: str = ""
    group: str = ""
    sweep: str = ""
    tags: tuple[str, ...] = ()
    host: str = ""
    started: float = 0.0
    exit_code: int | None = None
    status: RunStatus | None = None  # None only inside the W&B readers: a log file alone cannot tell
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: pa.Table = field(default_factory=lambda: pa.table({}))
    warnings: tuple[str, ...] = ()

    @property
    def ending(self) -> Ending:
        """How the run ended, in the word that every view shows."""
        return Ending.of(self.status, self.summary.get(metrics.ENDING))


_KINDS: dict[str, Any] = {
    **dict.fromkeys(("source", "run_id", "entity", "project", "name", "group", "sweep", "host", "status"), str),
    **dict.fromkeys(("tags", "warnings"), list),
    **dict.fromkeys(("config", "summary"), dict),
    "started": int | float,
    "exit_code": int | None,
}
"""The fields of a record but its history, as they come from JSON."""


def to_values(record: RunRecord) -> dict[str, object]:
    """Everything but the history, ready for JSON."""
    values = {name: getattr(record, name) for name in (field.name for field in dataclasses.fields(record))}
    del values["history"]
    return {**values, "status": record.status or ""}


def from_values(values: dict[str, Any], history: pa.Table) -> RunRecord:
    """The record from what ``to_values`` made; ValueError for anything else."""
    if not isinstance(values, dict) or values.keys() != _KINDS.keys():
        raise ValueError("not the values of a run")
    for name, kind in _KINDS.items():
        if not isinstance(values[name], kind):
            raise ValueError(f"{name} is not a {kind}")
    texts = {name: tuple(map(str, values[name])) for name in ("tags", "warnings")}
    status = RunStatus(values["status"]) if values["status"] else None
    config = upgraded(values["config"])
    return RunRecord(**{**values, **texts, "status": status, "config": config}, history=history)


LARGEST_ROUND = 2.0**53
"""Rounds that a damaged or foreign file may name: larger ones are no exact numbers."""
_LARGEST = 2**63  # of whole numbers: columns of a frame hold no larger ones
_WHOLE_OR_REAL = (int, float, int | None, float | None)


def readable(record: RunRecord) -> RunRecord:
    """The record itself, or one of a crashed run without configuration where that holds what no run can have.

    Logs and archives from elsewhere may hold anything: an option that is a number must be a finite number. What is
    wrong is added to the warnings. A start that is not finite counts as unknown. Lists of workers that do not go
    together are left out of the history.
    """
    if not math.isfinite(record.started):
        record = dataclasses.replace(record, started=0.0)
    if problem := _wrong_lists(record.history):
        present = [name for name in (metrics.EACH_WORKER, metrics.COHORT) if name in record.history.column_names]
        text = f"{record.source or record.run_id}: {problem}; the run's lists of workers are left out"
        record = dataclasses.replace(
            record, history=record.history.drop_columns(present), warnings=(*record.warnings, text)
        )
    numeric = _numeric_keys()
    wrong = [
        f"{name}={value!r}"
        for name, value in flatten(record.config)
        if name in numeric and value is not None and not _is_finite_number(value)
    ]
    wrong = [f"{text[:100]} is not a number" for text in wrong] or _wrong_targets(record.config.get("evaluation"))
    if not wrong:
        return record
    text = f"{record.source or record.run_id}: {wrong[0]}; the run cannot be read"
    status = RunStatus.CRASHED
    return dataclasses.replace(
        record, config={}, status=status, exit_code=status.exit_code, warnings=(*record.warnings, text)
    )


def _wrong_lists(history: pa.Table) -> str:
    """What is wrong with the accuracies of each worker and the ids of cohorts; empty where nothing is."""
    lists = [name for name in (metrics.COHORT, metrics.EACH_WORKER) if name in history.column_names]
    for name in lists:
        if history[name].type != pa.list_(pa.float64()):
            return f"{name} is not a list of numbers in every round"
    if metrics.EACH_WORKER not in lists:
        return ""
    each = history[metrics.EACH_WORKER].drop_null()
    sizes = {len(cell) for cell in each}
    if len(sizes) > 1 or 0 in sizes:
        return f"{metrics.EACH_WORKER} has {min(sizes)} workers in one round and {max(sizes)} in another"
    if metrics.COHORT not in lists:
        return f"{metrics.COHORT} is missing"
    return _wrong_cohorts(history[metrics.COHORT], sizes.pop()) if sizes else ""


def _wrong_cohorts(cohorts: pa.ChunkedArray, num_workers: int) -> str:
    ids = pc.list_flatten(cohorts).to_numpy()
    is_worker = (ids >= 0) & (ids < num_workers) & (ids == np.floor(ids))  # of NaN, in place of null, all are false
    if cohorts.null_count:
        return f"{metrics.COHORT} is missing in a round"
    return "" if is_worker.all() else f"{metrics.COHORT} holds {ids[~is_worker][0]:g}; workers are 0..{num_workers - 1}"


def _wrong_targets(evaluation: Any) -> list[str]:
    """What is wrong with the targets of a configuration, which tables look up."""
    targets = evaluation.get("targets") if isinstance(evaluation, dict) else None
    try:
        for target in targets if isinstance(targets, list) else [] if targets is None else [targets]:
            parse_target(target)
    except UserError as error:
        return [str(error)[:200]]
    return [] if isinstance(targets, list | None) else [f"{KEY}={str(targets)[:100]} is not a list"]


@functools.cache
def _numeric_keys() -> frozenset[str]:
    return frozenset(key for key, field in known_keys().items() if field.type in _WHOLE_OR_REAL)


def _is_finite_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST


def own_id(record: RunRecord) -> str:
    """The hash of the configuration where the run recorded it: under `wandb agent` W&B's id is another."""
    run = record.config.get(PROVENANCE)
    recorded = run.get("id") if isinstance(run, dict) else None
    return recorded if isinstance(recorded, str) and recorded else record.run_id


def merge(records: Iterable[RunRecord]) -> list[RunRecord]:
    """One record per run id: one that has ended before any other, then the newest, wins the run and each round."""
    fragments: dict[str, list[RunRecord]] = {}
    for record in records:
        identifier = own_id(record)
        fragments.setdefault(identifier, []).append(dataclasses.replace(record, run_id=identifier))
    return [_merge_fragments(fragments[identifier]) for identifier in sorted(fragments)]


def _merge_fragments(fragments: list[RunRecord]) -> RunRecord:
    ordered = sorted(fragments, key=lambda record: (bool(record.status and record.status.has_ended), record.started))
    winner = ordered[-1]
    histories = [one_row_per_round(record.history) for record in ordered]
    kept, taken = [], pa.array([], pa.int64())
    for history in reversed(histories):
        rounds = history[metrics.ROUND].combine_chunks()
        kept.append(history.filter(pc.invert(pc.is_in(rounds, taken))))
        taken = pa.concat_arrays([taken, rounds])
    history = kept[0] if len(kept) == 1 else concatenate(kept).sort_by(metrics.ROUND)
    warnings = tuple(dict.fromkeys(text for record in ordered for text in record.warnings))
    return dataclasses.replace(winner, history=history, warnings=warnings)


def one_row_per_round(history: pa.Table) -> pa.Table:
    """Rows that have a round, in order; several rows of one round become one (the last value of each key)."""
    kind = history.schema.field(metrics.ROUND).type if metrics.ROUND in history.column_names else pa.null()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return pa.table({metrics.ROUND: pa.array([], pa.int64())})
    names = [name for name in history.column_names if not name.startswith("_")]  # W&B's own: _step, _runtime
    history = history.select(names)
    history = history.filter(
        pc.less_equal(pc.abs(pc.cast(history[metrics.ROUND], pa.float64(), safe=False)), LARGEST_ROUND)
    )
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


def to_column(values: Iterable[Any]) -> pa.Array:
    """Numbers as float64, lists of numbers as lists of float64, all else as JSON text."""
    values = list(values)
    for kind in (pa.float64(), pa.list_(pa.float64())):
        try:
            return pa.array(values, type=kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            continue
    return pa.array(
        [None if value is None else json.dumps(value, sort_keys=True) for value in values], type=pa.string()
    )
