"""Copies of a run's process, as ``os.fork`` in the user's code makes: they end, and the run goes on without them."""

import contextlib
import os
from typing import Any

import lightning as L


class OneProcess(L.Callback):
    """Ends a copy of the process as soon as Lightning goes on in it, without a trace in files and loggers.

    A copy that never returns from the user's code, or becomes another program, is not concerned. The first of a run's
    callbacks, so that the others do nothing in a copy.
    """

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._process = os.getpid()  # not earlier: a rank may be started as a copy of the first

    def _check(self, trainer: L.Trainer, *_: Any, **__: Any) -> None:
        if os.getpid() != self._process:
            text = (
                f"fl_platform: round {trainer.current_epoch + 1}: your code copied the process (os.fork); "
                f"the copy {os.getpid()} ends, and the run goes on in process {self._process}\n"
            )
            with contextlib.suppress(OSError):
                os.write(2, text.encode())  # sys.stderr may hold what the first process has yet to write
            os._exit(1)

    on_train_batch_end = _check
    on_validation_end = _check
    on_save_checkpoint = _check
    on_exception = _check
    on_fit_end = _check
