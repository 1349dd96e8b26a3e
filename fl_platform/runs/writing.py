"""Writes files completely or not at all, and turns refusals of the file system into one sentence; sizes as text."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from fl_platform.errors import cannot_write

REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


@contextlib.contextmanager
def writing(place: str, hint: str = "") -> Iterator[None]:
    """Turn what the file system refuses into a ``UserError``, ``DiskFull`` where no space is left.

    ``place`` is the key, option or path that the message names; ``hint`` ends the sentence.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        raise cannot_write(place, error, hint) from None


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file completely or leave it as it was; OSError, which names the file, where the system refuses."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None  # a full disk names no file
    finally:
        partial.unlink(missing_ok=True)


def bytes_text(count: float) -> str:
    """``1.23 GB``: powers of 1000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
