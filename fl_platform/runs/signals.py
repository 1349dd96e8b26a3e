"""Signals that ask a process to end: Ctrl-C, SIGTERM of schedulers, and SIGHUP of a terminal that was closed."""

import contextlib
import os
import signal
import stat


def ending_signals() -> tuple[signal.Signals, ...]:
    """Those that a process should handle: SIGHUP is left alone where it is ignored, as below `nohup`."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *(() if is_ignored else (signal.SIGHUP,)))


def leave_terminal() -> None:
    """Let what is printed go nowhere where its terminal was closed: writing to that raises OSError."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for handle in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(handle).st_mode) and not os.isatty(handle):
                os.dup2(nowhere, handle)
    os.close(nowhere)
