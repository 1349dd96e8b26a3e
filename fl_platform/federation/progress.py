"""What a person sees and does while a run goes on: a progress bar or plain lines, and Ctrl-C."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import lightning as L
from lightning.pytorch.callbacks import ProgressBar
from tqdm.auto import tqdm

from fl_platform.runs.directory import json_text
from fl_platform.runs.signals import ending_signals, leave_terminal
from fl_platform.runs.writing import write_atomically

SECONDS_BETWEEN_LINES = 10


def is_notebook() -> bool:
    """Whether the code runs in a Jupyter kernel, where a bar can be drawn though stderr is no terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in shell.config


class RoundProgress(ProgressBar):
    """Round, accuracy, best, rounds/s and time left: a bar on a terminal and in a notebook, else a line every so
    often."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self._label = label
        self._bar: Any = None
        self._enabled = True
        self._started = self._last_line = time.monotonic()
        self._first_round = 0

    def disable(self) -> None:
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._started = self._last_line = time.monotonic()
        self._first_round = trainer.current_epoch
        if self._enabled and (sys.stderr.isatty() or is_notebook()):
            self._bar = tqdm(
                total=trainer.max_epochs,
                initial=trainer.current_epoch,
                desc=self._label,
                unit="round",
                dynamic_ncols=True,
            )

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        scores = pl_module.scoreboard
        shown = f"accuracy {scores.final_accuracy:.4f}, best {scores.top_accuracy:.4f}"  # type: ignore[union-attr]
        if self._bar is not None:
            with contextlib.suppress(OSError):  # its terminal was closed
                self._bar.set_postfix_str(shown, refresh=False)
                self._bar.update(1)
            return
        now, done = time.monotonic(), trainer.current_epoch + 1
        if self._enabled and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            rate = (done - self._first_round) / max(now - self._started, 1e-9)
            left = ((trainer.max_epochs or done) - done) / rate
            print(
                f"{self._label}: round {done}/{trainer.max_epochs}, {shown}, {rate:.1f} rounds/s, {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.close()


GRACE_SECONDS = 20.0
"""How long a round may still take after SIGTERM: schedulers send SIGKILL 30 seconds later."""


class GracefulStop(L.Callback):
    """The first Ctrl-C, SIGTERM or SIGHUP ends the run after this round, with a checkpoint; the second Ctrl-C or
    SIGTERM ends it at once.

    A round that is not over ``GRACE_SECONDS`` after SIGTERM is abandoned: the newest checkpoint counts.
    ``should_stop`` is asked after every round and ends the run in the same way. ``on_terminate`` is called after the
    round if the signal was SIGTERM, by which schedulers take a machine away.
    """

    on_terminate: Callable[[], None] | None = None

    def __init__(self, should_stop: Callable[[], bool] | None = None) -> None:
        self.requested = self._is_terminated = False
        self._should_stop = should_stop
        self._previous: dict[int, Any] = {}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if pl_module.scoreboard.diverged_round is not None:  # type: ignore[union-attr]
            trainer.should_stop = True  # by its checkpoint the run has ended
        if threading.current_thread() is not threading.main_thread():
            return  # only there can signals be handled
        for number in ending_signals():
            self._previous[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_terminal()
            if self.requested:  # the shell and the system may both send it
                return
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._is_terminated = number == signal.SIGTERM
        if self._is_terminated:
            self._previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._abandon)
            signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)
        print("\nfinishing this round and saving; once more stops at once", file=sys.stderr, flush=True)

    def _abandon(self, number: int, frame: FrameType | None) -> None:
        print(f"the round takes longer than {GRACE_SECONDS:g} s and is abandoned", file=sys.stderr, flush=True)
        raise KeyboardInterrupt

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._should_stop is not None and self._should_stop():
            self.requested = True
        # ranks must stop after the same round, whichever of them got the signal
        if trainer.strategy.reduce_boolean_decision(self.requested, all=False):
            self.requested = trainer.should_stop = True
            if self._is_terminated and self.on_terminate is not None:
                self.on_terminate()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._restore()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._restore()

    def _restore(self) -> None:
        """Lightning's handlers, which it takes away itself before it calls teardown."""
        if signal.SIGALRM in self._previous:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()


class RowFile(L.Callback):
    """Every round's metrics as a line of JSON, at once: what a dashboard, a sweep or a kill finds on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Also where no round is left to train, which on_train_start would miss."""
        rows = (json_text(row) + "\n" for row in pl_module.history)  # type: ignore[union-attr]
        write_atomically(self.path, "".join(rows))
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115, closed below

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write(pl_module.row)  # type: ignore[arg-type]

    def _write(self, row: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json_text(row) + "\n")
        self._file.flush()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._close()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
