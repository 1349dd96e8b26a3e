"""The launcher: proposes trials, starts as many as the pool takes, follows them, and records how they end."""

import errno
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from fl_platform.errors import cannot_write
from fl_platform.runs.rows import RowReader
from fl_platform.runs.signals import ending_signals, leave_terminal
from fl_platform.runs.writing import writing
from fl_platform.sweeps.definition import Sweep
from fl_platform.sweeps.disk import DiskUse
from fl_platform.sweeps.display import Display
from fl_platform.sweeps.ledger import Entry, Ledger
from fl_platform.sweeps.pools import InProcessPool, Pool
from fl_platform.sweeps.proposals import EngineTrial, grid, limit, propose, to_stop
from fl_platform.sweeps.states import TrialState
from fl_platform.sweeps.status import LEFT, Status, status_of
from fl_platform.sweeps.trials import (
    Outcome,
    Trial,
    environment,
    is_at_work,
    judge,
    make_trial,
    scalars,
    stored_outcome,
)

POLL_SECONDS = 0.1
RESUME_HINT = "; what was recorded stays, and the same command goes on"
LOOK_SECONDS = 1.0  # between looks at the ledger for a stop and at hyperband


def is_main_thread() -> bool:
    """Whether signal handlers can be installed here."""
    return threading.current_thread() is threading.main_thread()


@dataclass
class Running:
    """A trial that was started and has not ended."""

    trial: Trial
    attempt: int
    pid: int = 0
    was_at_work: bool = False  # whether another process held its run when it was started
    stop_as: TrialState | None = None  # the state it will have, once it was asked to stop
    rows: RowReader = field(default_factory=RowReader)

    def read(self) -> bool:
        """Read the rounds it has on disk so far; returns whether there are new ones."""
        return self.rows.read(self.trial.files.newest_rounds())

    def damage(self) -> str:
        """A sentence about rows of its file that cannot be read and are left out; empty without such rows."""
        return f"{self.rows.path}: {self.rows.damaged} rows are damaged and left out" if self.rows.damaged else ""


class Launcher:
    """One process that works on a sweep, alone or beside others."""

    def __init__(
        self,
        sweep: Sweep,
        directory: Path,
        ledger: Ledger,
        pool: Pool,
        display: Display,
        *,
        retries: int,
        cap: int | None,
    ) -> None:
        self.sweep, self.directory, self.ledger, self.pool, self.display = sweep, directory, ledger, pool, display
        self.retries, self.at_most = retries, limit(sweep, cap)
        self.running: dict[int, Running] = {}
        self.stopping = False
        self._signals = 0
        self._next_look = self._next_claim = 0.0
        self._trials: dict[int, Trial] = {}  # of trials at work alone: ten thousand would fill the memory
        self._places: dict[int, tuple[str | None, str]] = {}
        self._ended: dict[int, EngineTrial] = {}
        self._noticed: set[str] = set()
        self._disk = DiskUse(sweep.output)
        self._warned_of_disk = False
        self.partners: tuple[str, ...] = ()
        """Beginnings of the ledger's names of launchers that this one started; their trials are shown as its own."""
        self._followed: dict[int, Running] = {}
        self._shown_ends: dict[int, int] = {}  # trials of partners whose end was shown, with the attempt
        if isinstance(pool, InProcessPool):
            pool.meanwhile = self._look_when_due

    def run(self) -> Status:
        """Work until no trial is left or a signal or ``sweep stop`` ends it; returns the status of the sweep."""
        handled = ending_signals() if is_main_thread() else ()  # only there can they be handled
        earlier = {number: signal.signal(number, self._on_signal) for number in handled}
        try:
            with writing(f"output.dir={self.sweep.output}", RESUME_HINT):
                self.ledger.keep_retries(self.retries)
                if self.sweep.method == "grid":
                    self.ledger.propose(grid(self.sweep)[: self.at_most])
                while self._step():
                    pass
                self._follow_partners()
        finally:
            self.pool.kill()
            for number, handler in earlier.items():
                signal.signal(number, handler)
            for running in self.running.values():
                self._record(running, Outcome(TrialState.INTERRUPTED, scalars(running.rows.latest)))
        return self.status()

    def status(self) -> Status:
        """How far the sweep is."""
        return status_of(self.sweep, self.ledger, self.retries, self.at_most)

    def _step(self) -> bool:
        """Collect, stop and start trials once; returns False when there is nothing more to do."""
        self._collect()
        if self._signals > 1:
            self.stopping = True
            return False
        self._look_when_due()
        if not self.stopping and time.monotonic() >= self._next_claim and len(self.running) < self.pool.capacity():
            if self._start_next():
                return True
            self._next_claim = time.monotonic() + LOOK_SECONDS  # nothing is open until a trial ends somewhere
        time.sleep(POLL_SECONDS)
        return bool(self.running) or (not self.stopping and self._others_at_work())

    def _look_when_due(self) -> None:
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        self.ledger.beat()
        if not self.stopping and (self._signals or self.ledger.stop_requested()):
            self._stop_all()
        news = [running.read() for running in self.running.values()]
        if self.sweep.stops_early and any(news):
            self._stop_early()
        self._follow_partners()
        shown = [*self.running.values(), *self._followed.values()]
        self.display.update(self.status(), [(running.trial, running.rows.latest) for running in shown])

    def _follow_partners(self) -> None:
        """Show the starts, rounds and ends of trials that partners work on."""
        for entry in self.ledger.entries() if self.partners else ():
            if not (entry.launcher or "").startswith(self.partners) or not entry.run_id:
                self._followed.pop(entry.number, None)  # another launcher has it now, or it never was a run
                continue
            if self._shown_ends.get(entry.number) == entry.attempt:
                continue
            running = self._followed.get(entry.number)
            if running is None or running.attempt != entry.attempt:
                running = self._followed[entry.number] = Running(self._trial(entry), entry.attempt)
                self._say_start(running)
            if entry.state is TrialState.STARTED:
                running.read()
                continue
            self._say_end(running.trial, Outcome(entry.state, entry.summary, entry.data.get("message") or ""))
            self._shown_ends[entry.number] = entry.attempt
            del self._followed[entry.number]
            self._trials.pop(entry.number, None)

    def _others_at_work(self) -> bool:
        """Whether another launcher has a trial that this one would have to take over if that launcher died."""
        return any(entry.state is TrialState.STARTED for entry in self.ledger.entries()[: self.at_most])

    # --- starting ---

    def _start_next(self) -> bool:
        """Start one trial; returns False when none is open."""
        entry = self.ledger.claim(self.retries, self.at_most, self._identify)
        kept = {*self.running, *self._followed, *([entry.number] if entry else [])}
        self._trials = {number: trial for number, trial in self._trials.items() if number in kept}
        if entry is None:
            return self.sweep.method != "grid" and self.ledger.propose_next(self.at_most, self._propose)
        trial = self._trials[entry.number]
        for notice in trial.notices:
            self._say_once(notice)
        running = Running(trial, entry.attempt)
        if stored := stored_outcome(trial):
            self._record(running, stored)
            return True
        self.running[trial.number] = running
        self._say_start(running)
        running.was_at_work = is_at_work(trial)
        running.pid = self.pool.start(trial, environment(self.sweep, trial))
        if running.pid:
            self.ledger.record(
                trial.number, TrialState.STARTED, run_id=trial.spec.run_id, attempt=entry.attempt, pid=running.pid
            )
        return True

    def _say_start(self, running: Running) -> None:
        trial, again = running.trial, f", attempt {running.attempt}" if running.attempt > 1 else ""
        self.display.say(f"trial {trial.number} starts as run {trial.spec.run_id}{again}: {trial.label}")

    def _say_end(self, trial: Trial, outcome: Outcome) -> None:
        why = f": {outcome.message}" if outcome.message else ""
        self.display.say(f"trial {trial.number} {outcome.state}{self._score(outcome.summary)}{why}")

    def _say_once(self, message: str) -> None:
        if message and message not in self._noticed:
            self._noticed.add(message)
            self.display.say(message)

    def _identify(self, entry: Entry) -> str:
        return self._trial(entry).spec.run_id

    def _propose(self, number: int, entries: list[Entry]) -> dict[str, Any]:
        return propose(
            self.sweep, number, [self._engine_trial(entry) for entry in entries] if self.sweep.method == "bayes" else []
        )

    # --- ending ---

    def _collect(self) -> None:
        for number, exit_code in self.pool.ended().items():
            running = self.running.pop(number)
            self._next_claim = 0.0
            running.read()
            self._say_once(running.damage())
            outcome = judge(
                running.trial,
                exit_code,
                running.rows.latest,
                asked_to_stop=running.stop_as,
                was_at_work=running.was_at_work,
            )
            if outcome.state is TrialState.INTERRUPTED and isinstance(self.pool, InProcessPool):
                self.stopping = True  # Ctrl-C reached the trial itself
            self._record(running, outcome)
            if outcome.is_disk_full:  # every other trial would meet the same
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                hint = f" (trial {number}, log: {running.trial.log}){RESUME_HINT}"
                raise cannot_write(f"output.dir={self.sweep.output}", full, hint)
            if outcome.state.is_done and not self._warned_of_disk:
                self._warn_of_disk(running.trial)

    def _warn_of_disk(self, ended: Trial) -> None:
        """Say once that what is left will not fit, by the runs that have ended here."""
        self._disk.add(ended.files)
        warning = self._disk.warning(self.status().counts[LEFT])
        if warning:
            self._warned_of_disk = True
            self.display.say(f"warning: {warning}")

    def _record(self, running: Running, outcome: Outcome) -> None:
        """Write how a trial ended to the ledger, and show it."""
        data = {"summary": outcome.summary, "message": outcome.message}
        trial = running.trial
        self.ledger.record(
            trial.number, outcome.state, run_id=trial.spec.run_id, attempt=running.attempt, pid=running.pid, data=data
        )
        self._say_end(trial, outcome)

    def _score(self, summary: dict[str, Any]) -> str:
        value = summary.get(self.sweep.metric or "")
        return f", {self.sweep.metric}={value:.4f}" if isinstance(value, float) else ""

    def _stop_all(self) -> None:
        self.stopping = True
        self.display.say(
            f"stopping: {len(self.running)} trials finish their round and save; Ctrl-C once more kills them"
        )
        for number, running in self.running.items():
            running.stop_as = TrialState.INTERRUPTED
            self.pool.stop(number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_terminal()
            if self._signals:  # the shell and the system may both send it
                return
        self._signals += 1
        self._next_look = 0.0

    # --- trials for W&B's search engine ---

    def _stop_early(self) -> None:
        """Hyperband within each algorithm and scenario: across them it would stop whole methods, not worse points."""
        groups: dict[tuple[str | None, str], list[EngineTrial]] = {
            running.trial.place: [] for running in self.running.values()
        }
        for entry in self.ledger.entries():
            has_rounds = entry.state is TrialState.STARTED or entry.state.is_done
            if entry.run_id and has_rounds and self._place(entry) in groups:
                groups[self._place(entry)].append(self._engine_trial(entry))
        for number in [number for group in groups.values() for number in to_stop(self.sweep, group)]:
            if number in self.running and self.running[number].stop_as is None:
                self.running[number].stop_as = TrialState.STOPPED
                self.pool.stop(number)

    def _engine_trial(self, entry: Entry) -> EngineTrial:
        """A trial in the form the engine takes; the history of one that ended is read once."""
        if entry.number in self._ended:
            return self._ended[entry.number]
        found = EngineTrial(entry.number, entry.params, entry.state, entry.summary)
        if entry.number in self.running:
            found.history = self.running[entry.number].rows.values(self.sweep.metric)
        elif entry.run_id:
            earlier = Running(self._trial(entry), entry.attempt)
            earlier.read()
            self._say_once(earlier.damage())
            found.history = earlier.rows.values(self.sweep.metric)
        if entry.state.is_done:
            self._ended[entry.number] = found
        return found

    def _place(self, entry: Entry) -> tuple[str | None, str]:
        """Among which trials hyperband compares this one."""
        if entry.number not in self._places:
            self._places[entry.number] = self._trial(entry).place
        return self._places[entry.number]

    def _trial(self, entry: Entry) -> Trial:
        if entry.number not in self._trials:
            self._trials[entry.number] = make_trial(self.sweep, self.directory, entry.number, entry.params)
        return self._trials[entry.number]
