"""Reads run directories: once for a report, or again and again while a run is written."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from fl_platform.config.migrate import upgraded
from fl_platform.config.regular_files import open_regular, read_regular
from fl_platform.config.schema import flatten
from fl_platform.config.yaml_limits import check_size
from fl_platform.errors import UserError
from fl_platform.runs import cache, liveness, metrics
from fl_platform.runs.directory import RunDirectory, check_plain, checksum_of_bytes, stamp
from fl_platform.runs.formats import FormatError
from fl_platform.runs.record import PROVENANCE, RunRecord, one_row_per_round
from fl_platform.runs.rows import RowReader
from fl_platform.runs.status import Ending, RunStatus

_QUIET_SECONDS = 60.0  # without a new round for so long, or ten times the last round, a run may have died
FOREIGN = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What values that no run writes raise where those of a run are expected."""
_FastSafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where PyYAML was built with it


def read_directory(path: Path, wandb_log: Path | None = None, cache_dir: Path | None = None) -> RunRecord:
    """The run of a directory; ``wandb_log`` is read for how a run ended whose own files do not say it.

    The record of a run that has ended is kept in a cache beside the runs while its files stay as they are.
    """
    files = RunDirectory(path.parent, path.name)
    stamps = files.stamps()
    if (kept := _kept(files, stamps, cache_dir)) is not None:
        return kept
    record = RunReader(path, lists=True).read(wandb_log)
    assert record is not None  # a first read always returns a record
    if record.status and record.status.has_ended and files.counted_rounds(has_result=True) is not None:
        cache.save(cache.place_of(path, cache.of_runs(path, cache_dir)), cache.key_of(stamps), record)
    return record


def read_kept(path: Path, cache_dir: Path | None = None) -> RunRecord | None:
    """The run of a directory as the cache has it; None where it is not there, or its files have changed since."""
    files = RunDirectory(path.parent, path.name)
    return _kept(files, files.stamps(), cache_dir)


def _kept(files: RunDirectory, stamps: dict[str, tuple[int, int]], cache_dir: Path | None) -> RunRecord | None:
    if not any(stamps[files.result_file.name]):
        return None
    place = cache.place_of(files.path, cache.of_runs(files.path, cache_dir))
    return cache.load(place, cache.key_of(stamps), str(files.path))  # which attempt counts follows from the result


class RunReader:
    """One run directory, followed while it is written: configuration, rounds so far, result."""

    def __init__(self, path: Path, *, lists: bool = False) -> None:
        self.path = path
        self.updated = 0.0
        self._files = RunDirectory(path.parent, path.name)
        self._config: dict[str, Any] = {}
        self._description: dict[str, Any] = {}
        self._format_problem = ""
        self._started = 0.0
        self._result: dict[str, Any] = {}
        self._result_problem = ""
        self._noted: dict[str, Any] = {}  # checksums of files as they were written
        self._found: dict[str, str] = {}  # as they were read
        self._stamps: dict[str, int] = {}
        self._rows = RowReader(lists=lists)
        self._record: RunRecord | None = None

    def read(self, wandb_log: Path | None = None, sweep: str = "", known: RunStatus | None = None) -> RunRecord | None:
        """The run as it is now, or None when nothing changed since the last call.

        ``sweep`` and ``known`` are what a ledger has: which sweep the run is of, and how it stands in case its own
        files cannot tell; ``wandb_log`` is read last. Files with what no run writes give a crashed run with a warning.
        """
        try:
            return self._read(wandb_log, sweep, known)
        except FOREIGN as error:
            return self._unreadable(f"{self.path} cannot be read: {type(error).__name__}: {str(error)[:200]}")

    def _read(self, wandb_log: Path | None, sweep: str, known: RunStatus | None) -> RunRecord | None:
        is_changed = self._read_description() | self._read_config() | self._read_result()
        if self._format_problem:
            return self._unreadable(self._format_problem) if is_changed else None
        has_ended = self._result_status() is not None
        if self._record is None or is_changed or not has_ended:
            is_changed |= self._read_rows(has_ended)
        status, exit_code = self._status(wandb_log, known)
        description = {**self._description, **({"sweep": sweep} if sweep else {})}
        provenance = description.pop(PROVENANCE, None)
        before = self._record
        if (
            before is not None
            and not is_changed
            and (before.status, before.sweep) == (status, description.get("sweep", ""))
        ):
            return None
        self._record = RunRecord(
            source=str(self.path),
            run_id=self.path.name,
            **{"started": self._started, "tags": self._own_tags(), **description},
            exit_code=exit_code,
            status=status,
            config=self._config if provenance is None else {**self._config, PROVENANCE: provenance},
            summary={**self._rows.latest, **self._result, **self._ending(status)},
            history=one_row_per_round(self._rows.table()),
            warnings=tuple(self._warnings()),
        )
        return self._record

    def _unreadable(self, problem: str) -> RunRecord:
        """The record of a directory that a newer version, or something else, wrote."""
        code = RunStatus.CRASHED.exit_code
        self._record = RunRecord(
            str(self.path), self.path.name, status=RunStatus.CRASHED, exit_code=code, warnings=(problem,)
        )
        return self._record

    def _ending(self, status: RunStatus) -> dict[str, Any]:
        """The summary key that says how a run ended; none while it runs."""
        if status is RunStatus.RUNNING:
            return {}
        attempt = self._files.newest_attempt() if status is RunStatus.CRASHED else None
        return {metrics.ENDING: (liveness.crash_ending(attempt) if attempt else Ending.of(status)).value}

    def _warnings(self) -> Iterator[str]:
        if not self._config:
            yield f"{self.path}: config.yaml is missing or cannot be read"
        if self._result_problem:
            yield self._result_problem
        if self._rows.damaged:
            yield f"{self.path}: {self._rows.damaged} rows are damaged"
        for name, found in self._found.items():
            if self._noted.get(name, found) != found:
                yield f"{self.path}: {name} is not as the run wrote it: it is damaged or was edited"

    def _own_tags(self) -> tuple[str, ...]:
        """The tags in the configuration, for directories without `run.json`."""
        tracking = self._config.get("tracking")
        tags = tracking.get("tags") if isinstance(tracking, dict) else None
        return tuple(map(str, tags)) if isinstance(tags, list) else ()

    def _read_config(self) -> bool:
        path = self._files.config_file
        if not self._changed(path):
            return False
        try:
            text = read_regular(path)
            check_size(text)
            loaded = yaml.load(text, Loader=_FastSafeLoader)
            self._found[path.name] = checksum_of_bytes(text.encode())
            flatten(check_plain(loaded) if isinstance(loaded, dict) else {})  # what is nested too deep fails here
            self._started = path.stat().st_mtime
        except (OSError, ValueError, yaml.YAMLError, RecursionError):
            return False
        self._config = upgraded(loaded) if isinstance(loaded, dict) else {}
        return True

    def _read_description(self) -> bool:
        if not self._changed(self._files.description_file):
            return False
        self._description, self._format_problem = self._files.description(), ""
        self._noted = self._files.checksums()
        try:
            self._files.check_format()
        except FormatError as error:
            self._format_problem = str(error)
        return True

    def _read_result(self) -> bool:
        if not self._changed(self._files.result_file):
            return False
        self._result, self._result_problem = self._files.checked_result()
        return True

    def _changed(self, path: Path) -> bool:
        """Whether a file was written, or removed, since the last look."""
        written, _ = stamp(path)
        before, self._stamps[path.name] = self._stamps.get(path.name, 0), written
        self.updated = max(self.updated, written / 1e9)
        return written != before

    def _read_rows(self, has_result: bool) -> bool:
        path = self._files.counted_rounds(has_result=has_result)
        has_new = self._rows.read(path)
        if has_new and path is not None:
            self.updated = max(self.updated, stamp(path)[0] / 1e9)
            self._found.pop(path.name, None)
            if has_result and path.name in self._noted:
                with contextlib.suppress(OSError), open_regular(path) as file:
                    self._found[path.name] = checksum_of_bytes(file.read())
        return has_new

    def _result_status(self) -> RunStatus | None:
        status = RunStatus.parse(self._result.get(metrics.STATUS))
        return status if status and status.has_ended else None

    def _status(self, wandb_log: Path | None, known: RunStatus | None) -> tuple[RunStatus, int | None]:
        """(status, exit code): from the result, the process, its own note, the ledger, the time, the W&B log."""
        if status := self._result_status():
            return status, status.exit_code
        attempt = self._files.newest_attempt()
        alive = liveness.is_alive(attempt) if attempt else None
        if alive:
            return RunStatus.RUNNING, None
        if attempt and (noted := liveness.recorded_end(attempt)):
            return noted, noted.exit_code
        if alive is None and known is not None and not known.has_ended:
            return known, None
        seconds = self._rows.latest.get(metrics.ROUND_SECONDS)
        patience = max(_QUIET_SECONDS, 10.0 * seconds if isinstance(seconds, int | float) else 0.0)
        if alive is None and time.time() - self.updated < patience:
            return RunStatus.RUNNING, None
        logged = _status_in_log(wandb_log)
        return (RunStatus.CRASHED if logged is RunStatus.RUNNING and alive is False else logged), None


def _status_in_log(path: Path | None) -> RunStatus:
    """What the W&B log says of a run that left no result: interrupted, crashed, or alive in a long round."""
    if path is None:
        return RunStatus.CRASHED
    from fl_platform.runs import wandb_logs

    try:
        return wandb_logs.read_with_status(path).status or RunStatus.CRASHED
    except UserError:
        return RunStatus.CRASHED
