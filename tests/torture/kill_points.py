"""Places inside a process where it kills itself, on purpose and to the call."""

import os
import signal
import sys
from types import FrameType
from typing import Any

PLACES = {
    "local steps": ("engines/training.py", "train"),
    "server step": ("federation/round.py", "server_step"),
    "evaluation": ("federation/module.py", "evaluate"),
    "row file": ("federation/progress.py", "on_validation_end"),
    "W&B logging": ("loggers/wandb.py", "log_metrics"),
    "checkpoint": ("federation/checkpoints.py", "save_checkpoint"),
    "result": ("runs/directory.py", "complete"),
    "claim": ("sweeps/ledger.py", "claim"),
    "record": ("sweeps/ledger.py", "record"),
}
"""Words -> the end of a file's name, and a function in it."""


def arm(place: str, entry: int, event: int, signals: tuple[int, ...] = (signal.SIGKILL,)) -> None:
    """Signals at the ``event``-th call or return below the ``entry``-th call of a place, or at its own return."""
    file, function = PLACES[place]
    inside: FrameType | None = None
    entries = events = 0

    def watch(frame: FrameType, kind: str, argument: Any) -> None:
        nonlocal inside, entries, events
        if inside is None:
            code = frame.f_code
            if kind == "call" and code.co_name == function and code.co_filename.endswith(file):
                entries += 1
                inside = frame if entries == entry else None
            return
        events += 1
        if events == event or (kind == "return" and frame is inside):
            sys.setprofile(None)
            for number in signals:
                os.kill(os.getpid(), number)

    sys.setprofile(watch)
