"""Whether a process is at work on something: while it is, it holds a lock, which the system releases when it ends."""

import contextlib
import fcntl
import json
import os
import re
import socket
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from fl_platform.config.regular_files import read_regular
from fl_platform.errors import NO_SPACE_LEFT, DiskFull, OutOfMemory, UserCodeError, UserError, sentence
from fl_platform.runs.status import Ending, RunStatus

FILE = "process.json"
ERROR_FILE = "error.txt"
"""Beside it: the traceback of what ended a crashed attempt."""
_QUIET_LOG_SECONDS = 900.0  # a log without an exit record that was written this recently may still be running
_PROCESS = re.compile(r":(\d+) \[")  # thread and process of a line: "INFO    MainThread:4711 [wandb_setup.py"


@contextlib.contextmanager
def at_work(attempt: Path) -> Iterator[None]:
    """Hold an attempt for this process, and note in its `process.json` when it ends by an exception.

    Raises UserError where another process holds it. What the file said before, if anything, is kept when the work
    itself raises UserError: then the run was refused before it went on.
    """
    handle = os.open(attempt / FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _take(handle):
            raise held_error(attempt)
        earlier = holder(attempt)
        _write(handle, None)
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(OSError):  # a full disk; without the note the run counts as crashed as well
                if earlier and isinstance(error, UserError) and not isinstance(error, DiskFull):
                    _write(handle, RunStatus.parse(earlier.get("status")), Ending.parse(earlier.get("ending")))
                else:
                    ending = ending_of(error)
                    _write(handle, ending.status, ending)
                    (attempt / ERROR_FILE).unlink(missing_ok=True)
                    if ending.status is RunStatus.CRASHED:
                        write_error(attempt, error)
            raise
        (attempt / ERROR_FILE).unlink(missing_ok=True)
    finally:
        os.close(handle)


def held_error(attempt: Path) -> UserError:
    """The error for an attempt that another process works on."""
    who = holder(attempt)
    return UserError(
        f"{attempt} is being written by process {who.get('pid')} on {who.get('host')}; wait for it or stop it first"
    )


def check_locks(directory: Path) -> None:
    """Raise UserError unless a lock that one open file holds is seen through another, as launchers rely on.

    Some network and user-space file systems take locks without keeping them, or refuse them.
    """
    path = directory / f".lock-{os.getpid()}"
    first = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        second = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError as error:
            raise UserError(_no_locks(directory, f" ({error.strerror})")) from None
        finally:
            os.close(second)
        raise UserError(_no_locks(directory, ""))
    finally:
        os.close(first)
        path.unlink(missing_ok=True)


def _no_locks(directory: Path, why: str) -> str:
    return (
        f"{directory} is on a file system without working locks{why}: two launchers could run a trial twice; "
        "put output.dir on a local disk"
    )


def _take(handle: int) -> bool:
    """Take the lock unless a process holds it; a reader that tests it for a moment is waited for."""
    for _ in range(20):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:  # a file system without locks
            return True
    return False


def ending_of(error: BaseException) -> Ending:
    """How a run ended that this exception ended; the second Ctrl-C and an abandoned round interrupt it."""
    if isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in NO_SPACE_LEFT):
        return Ending.DISK_FULL
    if isinstance(error, MemoryError | OutOfMemory):
        return Ending.OUT_OF_MEMORY
    if isinstance(error, KeyboardInterrupt):
        return Ending.INTERRUPTED
    return Ending.USER_CODE if isinstance(error, UserCodeError) else Ending.CRASHED


def crash_ending(attempt: Path) -> Ending:
    """How the process of a crashed attempt ended: as it recorded, else killed, or lost on another host."""
    noted = holder(attempt)
    if "status" in noted:
        return Ending.of(RunStatus.CRASHED, noted.get("ending"))
    return Ending.LOST if is_alive(attempt) is None else Ending.KILLED


def error_file(attempt: Path) -> Path | None:
    """The traceback of what ended an attempt; None unless it says that it crashed."""
    is_crash = recorded_end(attempt) is RunStatus.CRASHED and (attempt / ERROR_FILE).is_file()
    return attempt / ERROR_FILE if is_crash else None


def write_error(attempt: Path, error: BaseException) -> None:
    """Keep the traceback of what ended an attempt: of the user's code alone where that failed."""
    trace = error.trace if isinstance(error, UserCodeError) else "".join(traceback.format_exception(error))
    text = f"{trace.rstrip()}\n{sentence(error)}\n" if isinstance(error, UserCodeError) else trace
    (attempt / ERROR_FILE).write_text(text, encoding="utf-8", errors="backslashreplace")


def _write(handle: int, end: RunStatus | None, ending: Ending | None = None) -> None:
    values = {"host": socket.gethostname(), "pid": os.getpid(), **({"status": end.value} if end else {})}
    if ending is not None:
        values["ending"] = ending.value
    content = json.dumps(values).encode()
    os.pwrite(handle, content, 0)
    os.ftruncate(handle, len(content))


def record_end(attempt: Path, status: RunStatus) -> None:
    """Note how the process of an attempt ended that leaves no result; call it while ``at_work``."""
    handle = os.open(attempt / FILE, os.O_RDWR)
    try:
        _write(handle, status)
    finally:
        os.close(handle)


def recorded_end(attempt: Path) -> RunStatus | None:
    """How the process of an attempt said it ended; None where it is running, was killed, or left a result."""
    return RunStatus.parse(holder(attempt).get("status"))


def is_alive(attempt: Path) -> bool | None:
    """Whether the process of an attempt still runs; None where that cannot be known, as from another host."""
    return is_held(attempt / FILE) if holder(attempt).get("host") == socket.gethostname() else None


def is_held(path: Path) -> bool | None:
    """Whether a process holds the lock on a file; None without the file, or on a file system without locks."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)
    return False


def holder(attempt: Path) -> dict[str, object]:
    """What an attempt's file says of its process (host, pid, status); empty where there is no such file."""
    try:
        named = json.loads(read_regular(attempt / FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return named if isinstance(named, dict) else {}


def is_log_written(log: Path, host: str) -> bool:
    """Whether the process that writes a W&B log still runs; on another host, whether the log is fresh."""
    try:
        if host == socket.gethostname():
            # of W&B's logs only this one is the run's alone: services that start in the same second share theirs
            with open(log.parent / "logs" / "debug.log", encoding="utf-8") as file:
                if found := _PROCESS.search(file.readline()):
                    return _process_exists(int(found[1]))
    except (OSError, ValueError):
        pass
    try:
        return time.time() - log.stat().st_mtime < _QUIET_LOG_SECONDS
    except OSError:
        return False


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
