"""Everything below a path, kept current: runs from their directories, else from W&B logs, and sweeps from ledgers.

One thread looks at the files and publishes a new ``State``; readers take the newest one and never wait.
"""

import threading
import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fl_platform.dashboard.sweeps import ShownSweep, TrialOfRun, read_sweep
from fl_platform.errors import UserError
from fl_platform.reporting.shown import ShownRun, relabelled, shown
from fl_platform.runs import wandb_logs
from fl_platform.runs.formats import LEDGER_FILE
from fl_platform.runs.reader import RunReader
from fl_platform.runs.record import RunRecord, merge, own_id
from fl_platform.runs.sources import Found, discover, read
from fl_platform.runs.status import RunStatus

LOOK_SECONDS = 1.0
_SHARE = 20  # looks take a twentieth of the time,
_LONGEST_PAUSE = 5.0  # unless news would then be late
_PUBLISH_SECONDS = 0.5  # how often a first, long look shows what it has so far
_SWEEP_SECONDS = 5.0  # estimates of the time left change though the ledger does not


@dataclass(frozen=True)
class State:
    """What was found. ``versions`` says in which version each run changed last; ``complete_since`` which version
    was the last one to lose a run."""

    version: int = 0
    runs: Mapping[str, ShownRun] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    sweeps: tuple[ShownSweep, ...] = ()
    complete_since: int = 0
    unread: int = 0  # runs that a first look has yet to read
    warnings: tuple[str, ...] = ()

    def trial(self, run_id: str) -> TrialOfRun | None:
        return next((sweep.trials[run_id] for sweep in self.sweeps if run_id in sweep.trials), None)


class Store:
    """The newest ``state`` of a path, as ``look`` finds it."""

    def __init__(self, root: Path) -> None:
        if not root.exists():
            raise UserError(f"{root}: no such directory; give the output.dir of some runs, or a file of archived runs")
        self.root = root
        self.state = State()
        self._stop = threading.Event()
        self._readers: dict[str, RunReader] = {}
        self._sweeps: dict[Path, tuple[object, float, ShownSweep]] = {}
        self._logs: dict[Path, tuple[tuple[int, int], RunRecord]] = {}
        self._archived = {record.run_id: shown(record) for record in read([root])} if root.is_file() else None
        self._thread = threading.Thread(target=self._work, name="look", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def is_looking(self) -> bool:
        """Whether news still comes; an error in the thread, which the terminal shows, would end it."""
        return self._thread.is_alive()

    def _work(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            began = time.monotonic()
            self.look()
            pause = min(max(LOOK_SECONDS, _SHARE * (time.monotonic() - began)), _LONGEST_PAUSE)

    def look(self) -> State:
        """Bring ``state`` up to date with the files."""
        if self._archived is not None:
            self._publish(self._archived, dict.fromkeys(self._archived, 1), ())
            return self.state
        found = discover(self.root)
        self._forget(found)
        sweeps = tuple(self._sweep(path) for path in found.sweeps)
        trials = {run_id: trial for sweep in sweeps for run_id, trial in sweep.trials.items()}
        runs, versions = dict(self.state.runs), dict(self.state.versions)
        version, published = self.state.version + 1, time.monotonic()
        seen: set[str] = set()
        for place, (run_id, news) in enumerate(self._read_runs(found, trials)):
            if self._stop.is_set():
                return self.state
            seen.add(run_id)
            if news is not None:
                runs[run_id], versions[run_id] = news, version
            if time.monotonic() - published > _PUBLISH_SECONDS:
                self._publish(dict(runs), dict(versions), sweeps, max(0, len(found.runs) - place - 1))
                version, published = self.state.version + 1, time.monotonic()
        for run_id in runs.keys() - seen:
            del runs[run_id], versions[run_id]
        self._publish(runs, versions, sweeps)
        return self.state

    def _forget(self, found: Found) -> None:
        """Drop what was kept of runs, logs and sweeps that are gone; one that comes back is read anew."""
        runs, logs, sweeps = set(found.runs), set(found.logs), set(found.sweeps)
        self._readers = {run_id: reader for run_id, reader in self._readers.items() if reader.path in runs}
        self._logs = {path: kept for path, kept in self._logs.items() if path in logs}
        self._sweeps = {path: kept for path, kept in self._sweeps.items() if path in sweeps}

    def _publish(
        self, runs: dict[str, ShownRun], versions: dict[str, int], sweeps: tuple[ShownSweep, ...], unread: int = 0
    ) -> None:
        """Show what was found under a new version, unless it is what is shown already."""
        before = self.state
        if before.version and (versions, sweeps, unread) == (before.versions, before.sweeps, before.unread):
            return
        version = before.version + 1
        for run_id, run in relabelled(runs).items():
            runs[run_id], versions[run_id] = run, version
        has_lost = bool(before.runs.keys() - runs.keys())
        warnings = tuple(text for run in runs.values() for text in run.log.warnings)
        complete_since = version if has_lost else before.complete_since
        self.state = State(version, runs, versions, sweeps, complete_since, unread, warnings)

    def _read_runs(self, found: Found, trials: dict[str, TrialOfRun]) -> Iterator[tuple[str, ShownRun | None]]:
        """(run id, the run or None when it did not change): newest directories first, then logs without one."""
        directories, logs = found.directories(), found.logs_by_id()
        for run_id, path in directories.items():
            reader = self._readers.get(run_id)
            if reader is None or reader.path != path:
                reader = self._readers[run_id] = RunReader(path)
            trial = trials.get(run_id)
            sweep, known = (trial.sweep, trial.status) if trial else ("", None)
            record = reader.read(logs[run_id][-1] if run_id in logs else None, sweep, known)
            yield run_id, shown(record, reader.updated) if record else None
        alone = [path for wandb_id, paths in logs.items() if wandb_id not in directories for path in paths]
        yield from self._read_logs(alone, directories)

    def _read_logs(self, paths: list[Path], directories: Container[str]) -> Iterator[tuple[str, ShownRun | None]]:
        """Runs of which there is nothing but a W&B log; under `wandb agent` its name is not our run id."""
        fragments: dict[str, list[RunRecord]] = {}
        changed: set[str] = set()
        for path in paths:
            record, is_new = self._read_log(path)
            if (run_id := own_id(record)) not in directories:
                fragments.setdefault(run_id, []).append(record)
                changed |= {run_id} if is_new else set()
        for run_id, parts in fragments.items():
            if run_id not in changed and run_id in self.state.runs:
                yield run_id, None
                continue
            (record,) = merge(parts)
            yield run_id, shown(record, max(stamp_of(Path(part.source))[0] for part in parts) / 1e9)

    def _read_log(self, path: Path) -> tuple[RunRecord, bool]:
        """A log and whether it, or what is known of its process, changed since the last look."""
        stamp = stamp_of(path)
        before, record = self._logs.get(path, ((0, 0), None))
        is_known = record is not None and stamp == before
        current = wandb_logs.with_status(record) if record and is_known else _log_or_error(path)
        self._logs[path] = (stamp, current)
        return current, not is_known or record is None or current.status is not record.status

    def _sweep(self, path: Path) -> ShownSweep:
        stamp = tuple(stamp_of(path / name) for name in (LEDGER_FILE, f"{LEDGER_FILE}-wal", "launchers"))
        now = time.monotonic()
        before = self._sweeps.get(path)
        if before is not None and before[0] == stamp and now - before[1] < _SWEEP_SECONDS:
            return before[2]
        sweep = read_sweep(path)
        self._sweeps[path] = (stamp, now, sweep)
        return sweep


def _log_or_error(path: Path) -> RunRecord:
    try:
        return wandb_logs.read_with_status(path)
    except UserError as error:
        code = RunStatus.CRASHED.exit_code
        return RunRecord(
            str(path), path.stem.removeprefix("run-"), exit_code=code, status=RunStatus.CRASHED, warnings=(str(error),)
        )


def stamp_of(path: Path) -> tuple[int, int]:
    """(modification time, size); zeros for a file that is gone."""
    try:
        stat = path.stat()
    except OSError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_size)
