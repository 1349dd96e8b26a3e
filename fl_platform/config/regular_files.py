"""Reads files from outside only if they are regular: a pipe would be waited for, a device read without end."""

import errno
import io
import os
import stat
from pathlib import Path

LARGEST_JSON = 100_000_000
"""Bytes that are read of a file with settings or a summary; those of the platform have a few thousand."""


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file to read its bytes; OSError, without waiting, for a pipe, a device or a folder."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(handle, "rb")


def read_regular(path: Path, at_most: int = LARGEST_JSON) -> str:
    """The text of a file; OSError where it is not a regular file or has more bytes, ValueError unless it is UTF-8."""
    with open_regular(path) as file:
        content = file.read(at_most + 1)
    if len(content) > at_most:
        raise OSError(errno.EFBIG, f"it has more than {at_most} bytes", str(path))
    return content.decode("utf-8")


def check_regular(path: Path, at_most: int | None = None) -> None:
    """Raise OSError unless a file is a regular one of at most so many bytes."""
    with open_regular(path) as file:
        if at_most is not None and os.fstat(file.fileno()).st_size > at_most:
            raise OSError(errno.EFBIG, f"it has more than {at_most} bytes", str(path))


def refuse_pipe(path: Path) -> None:
    """Raise OSError for a named pipe; those that a shell makes, `<(command)`, and /dev/stdin are read."""
    if stat.S_ISFIFO(os.stat(path).st_mode) and not path.is_relative_to("/dev"):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
