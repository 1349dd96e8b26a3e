"""One run directory, followed while it is written: configuration, rounds so far, result."""

import json
import socket
import time
from pathlib import Path
from typing import Any

import yaml

from fl_platform.runs import metrics
from fl_platform.config.migrate import upgraded
from fl_platform.config.schema import flatten
from fl_platform.runs.rows import RowReader
from fl_platform.dashboard.sweeps import TrialOfRun
from fl_platform.errors import UserError
from fl_platform.runs.liveness import is_alive as is_at_work
from fl_platform.runs import cache
from fl_platform.runs.frames import CRASHED, ENDED, RUNNING, is_alive, one_row_per_round, status_of
from fl_platform.runs.wandb_file import LoggedRun
from fl_platform.config.yaml_limits import check_size

QUIET_SECONDS = 60.0  # without a new round for so long, or ten times the last round, a run may have died
_FastSafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where PyYAML was built with it


class RunFiles:
    """What the files of one run id say. `RunDirectory` would say it too, but brings torch along."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.updated = 0.0
        self._config: dict[str, Any] = {}
        self._started = 0.0
        self._result: dict[str, Any] = {}
        self._stamps: dict[str, int] = {}
        self._rows: RowReader | None = None
        self._log: LoggedRun | None = None

    def read(self, trial: TrialOfRun | None, wandb_log: Path | None) -> LoggedRun | None:
        """The run as it is now, or None when nothing changed since the last call."""
        news = self._read_config() | self._read_result()
        if self._log is None or self._log.status not in ENDED or news:
            news |= self._read_rows()
        status = self._status(trial, wandb_log)
        sweep = trial.sweep if trial else ""
        if self._log is not None and not news and (self._log.status, self._log.sweep) == (status, sweep):
            return None
        history = one_row_per_round(self._rows.table()) if self._rows else LoggedRun("", "").history
        damaged = self._rows.damaged if self._rows else 0
        tracking = self._config.get("tracking")
        tags = tracking.get("tags") if isinstance(tracking, dict) else None
        self._log = LoggedRun(
            source=str(self.path),
            run_id=self.path.name,
            sweep=sweep,
            tags=tuple(map(str, tags)) if isinstance(tags, list) else (),
            started=self._started,
            status=status,
            config=self._config,
            summary=self._result,
            history=history,
            warnings=(f"{self.path}: {damaged} rows are damaged",) if damaged else (),
        )
        return self._log

    def _read_config(self) -> bool:
        path = self.path / "config.yaml"
        if not self._changed(path):
            return False
        try:
            text = path.read_text(encoding="utf-8")
            check_size(text)
            loaded = yaml.load(text, Loader=_FastSafeLoader)
            flatten(loaded if isinstance(loaded, dict) else {})  # what is nested too deep for readers fails here
            self._started = path.stat().st_mtime
        except (OSError, ValueError, yaml.YAMLError, RecursionError):
            return False
        self._config = upgraded(loaded) if isinstance(loaded, dict) else {}
        return True

    def _read_result(self) -> bool:
        path = self.path / "result.json"
        if not self._changed(path):
            return False
        try:
            loaded = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            loaded = {}
        self._result = loaded if isinstance(loaded, dict) else {}
        return True

    def _changed(self, path: Path) -> bool:
        """Whether a file was written, or removed, since the last look."""
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            stamp = 0
        before, self._stamps[path.name] = self._stamps.get(path.name, 0), stamp
        self.updated = max(self.updated, stamp / 1e9)
        return stamp != before

    def _read_rows(self) -> bool:
        """The rounds of the attempt that counts: the one the result is from, else the newest."""
        attempts = sorted(self.path.glob("attempts/[0-9]*/rounds.jsonl"))
        if not attempts:
            return False
        path = attempts[0] if self._result else attempts[-1]  # a complete attempt removes the earlier ones
        is_new = self._rows is None or self._rows.path != path
        if self._rows is None or is_new:
            self._rows = RowReader(path)
        has_rows = self._rows.read()
        if has_rows:
            self.updated = max(self.updated, path.stat().st_mtime)
        return is_new or has_rows

    def _status(self, trial: TrialOfRun | None, wandb_log: Path | None) -> str:
        said = self._result.get(metrics.STATUS)
        if said in ENDED:
            return str(said)
        if trial is not None and trial.status not in ENDED:
            return trial.status
        alive = is_at_work(self._rows.path.parent) if self._rows else None
        if alive is not None:
            return RUNNING if alive else _status_in_log(wandb_log)
        if time.time() - self.updated < max(QUIET_SECONDS, 10 * self._round_seconds()):
            return RUNNING
        return _status_in_log(wandb_log)

    def _round_seconds(self) -> float:
        return self._rows.last(metrics.ROUND_SECONDS) if self._rows else 0.0


def _status_in_log(path: Path | None) -> str:
    """What the W&B log says of a run that left no result: interrupted, crashed, or alive in a long round."""
    if path is None:
        return CRASHED
    if is_alive(path, socket.gethostname()):
        return RUNNING
    try:
        status = status_of(cache.read(path))
    except UserError:
        return CRASHED
    return CRASHED if status == RUNNING else status
