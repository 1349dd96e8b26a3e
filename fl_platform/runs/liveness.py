"""Whether a process is at work on an attempt: while it is, it holds a lock on a file that names it."""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from fl_platform.errors import UserError

FILE = "process.json"


@contextlib.contextmanager
def at_work(attempt: Path) -> Iterator[None]:
    """Hold an attempt for this process; the system lets go of it however the process ends."""
    handle = os.open(attempt / FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _take(handle):
            who = holder(attempt)
            raise UserError(
                f"{attempt} is being written by process {who.get('pid')} on {who.get('host')}; "
                "wait for it or stop it first"
            )
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode(), 0)
        yield
    finally:
        os.close(handle)


def _take(handle: int) -> bool:
    """Whether the lock could be had; a reader that looks at it in passing is waited for."""
    for _ in range(20):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:  # a file system without locks
            return True
    return False


def is_alive(attempt: Path) -> bool | None:
    """Whether the process of an attempt still runs; None where that cannot be told, as from another host."""
    if holder(attempt).get("host") != socket.gethostname():
        return None
    try:
        handle = os.open(attempt / FILE, os.O_RDONLY)
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
    """The host and process id that an attempt's file names; nothing where there is none."""
    try:
        named = json.loads((attempt / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return named if isinstance(named, dict) else {}
