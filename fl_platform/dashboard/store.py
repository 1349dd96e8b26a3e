"""Everything below a path, kept current: runs from their directories, else from W&B logs, and sweeps from ledgers.

One thread looks at the files and publishes a new ``State``; readers take the newest one and never wait.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fl_platform.dashboard.sweeps import LEDGER, ShownSweep, TrialOfRun, read_sweep
from fl_platform.errors import UserError
from fl_platform.reporting.shown import ShownRun, shown
from fl_platform.runs import cache
from fl_platform.runs.frames import CRASHED, merge, own_id, read_source, with_status
from fl_platform.runs.live import RunFiles
from fl_platform.runs.wandb_file import LoggedRun

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


@dataclass
class Found:
    """Places below a path."""

    runs: list[Path] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)
    sweeps: list[Path] = field(default_factory=list)


def discover(root: Path) -> Found:
    """Run directories, W&B logs and sweep directories; nothing below these is looked into."""
    found = Found()
    for place, folders, files in os.walk(root):
        path = Path(place)
        if "attempts" in folders:
            found.runs.append(path)
        elif LEDGER in files:
            found.sweeps.append(path)
        else:
            logs = [path / name for name in files if name.endswith(".wandb")]
            found.logs += logs
            if not logs:
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                continue
        folders.clear()
    return found


class Store:
    """The newest ``state`` of a path, as ``look`` finds it."""

    def __init__(self, root: Path) -> None:
        if not root.exists():
            raise UserError(f"{root}: no such directory; give the output.dir of some runs, or a file of archived runs")
        self.root = root
        self.state = State()
        self._stop = threading.Event()
        self._files: dict[str, RunFiles] = {}
        self._sweeps: dict[Path, tuple[object, float, ShownSweep]] = {}
        self._logs: dict[Path, tuple[tuple[int, int], LoggedRun]] = {}
        self._told: dict[Path, str] = {}
        self._archived = {log.run_id: shown(log) for log in merge(read_source(root))} if root.is_file() else None
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

    def _publish(
        self, runs: dict[str, ShownRun], versions: dict[str, int], sweeps: tuple[ShownSweep, ...], unread: int = 0
    ) -> None:
        """Show what was found under a new version, unless it is what is shown already."""
        before = self.state
        if before.version and (versions, sweeps, unread) == (before.versions, before.sweeps, before.unread):
            return
        version = before.version + 1
        has_lost = bool(before.runs.keys() - runs.keys())
        warnings = tuple(text for run in runs.values() for text in run.log.warnings)
        complete_since = version if has_lost else before.complete_since
        self.state = State(version, runs, versions, sweeps, complete_since, unread, warnings)

    def _read_runs(self, found: Found, trials: dict[str, TrialOfRun]) -> Iterator[tuple[str, ShownRun | None]]:
        """(run id, the run or None when it did not change): newest directories first, then logs without one."""
        logs: dict[str, list[Path]] = {}
        for path in found.logs:
            logs.setdefault(path.stem.removeprefix("run-"), []).append(path)
        own: set[str] = set()
        for path in sorted(found.runs, key=lambda path: stamp_of(path / "config.yaml"), reverse=True):
            if path.name in own:
                continue  # the same experiment in a second output.dir: the newest counts
            own.add(path.name)
            files = self._files.get(path.name)
            if files is None or files.path != path:
                files = self._files[path.name] = RunFiles(path)
            log = files.read(trials.get(path.name), max(logs.get(path.name, []), default=None))
            yield path.name, shown(log, files.updated) if log else None
        yield from self._read_logs([path for name, paths in logs.items() if name not in own for path in paths], own)

    def _read_logs(self, paths: list[Path], own: set[str]) -> Iterator[tuple[str, ShownRun | None]]:
        """Runs of which there is nothing but a W&B log; under `wandb agent` its name is not our run id."""
        fragments: dict[str, list[LoggedRun]] = {}
        changed: set[str] = set()
        for path in paths:
            log, is_new = self._read_log(path)
            if (run_id := own_id(log)) not in own:
                fragments.setdefault(run_id, []).append(log)
                changed |= {run_id} if is_new else set()
        for run_id, parts in fragments.items():
            if run_id not in changed and run_id in self.state.runs:
                yield run_id, None
                continue
            (log,) = merge(parts)
            yield run_id, shown(log, max(stamp_of(Path(part.source))[0] for part in parts) / 1e9)

    def _read_log(self, path: Path) -> tuple[LoggedRun, bool]:
        """A log and whether it, or what is known of its process, changed since the last look."""
        stamp = stamp_of(path)
        before, log = self._logs.get(path, ((0, 0), None))
        if log is None or stamp != before:
            log = _log_or_error(path)
        current = with_status(log)
        told = self._told.get(path)
        self._logs[path], self._told[path] = (stamp, log), current.status
        return current, (stamp, current.status) != (before, told)

    def _sweep(self, path: Path) -> ShownSweep:
        stamp = tuple(stamp_of(path / name) for name in (LEDGER, f"{LEDGER}-wal", "launchers"))
        now = time.monotonic()
        before = self._sweeps.get(path)
        if before is not None and before[0] == stamp and now - before[1] < _SWEEP_SECONDS:
            return before[2]
        sweep = read_sweep(path)
        self._sweeps[path] = (stamp, now, sweep)
        return sweep


def _log_or_error(path: Path) -> LoggedRun:
    try:
        return cache.read(path)
    except UserError as error:
        return LoggedRun(str(path), path.stem.removeprefix("run-"), status=CRASHED, warnings=(str(error),))


def stamp_of(path: Path) -> tuple[int, int]:
    """(modification time, size); zeros for a file that is gone."""
    try:
        stat = path.stat()
    except OSError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_size)
