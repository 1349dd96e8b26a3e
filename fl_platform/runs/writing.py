"""Files that are whole or absent, and file systems that refuse: one sentence instead of a traceback."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from fl_platform.errors import UserError

REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


@contextlib.contextmanager
def writing(place: str, cure: str = "") -> Iterator[None]:
    """``place`` is the key, option or path that messages name; ``cure`` ends the sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        raise UserError(f"{place} cannot be written: {os.strerror(error.errno)}{cure}") from None


def is_full(message: str) -> bool:
    """Whether a message of ``writing`` says that there is no room: no fault of what was to be written."""
    return any(os.strerror(code) in message for code in (errno.ENOSPC, errno.EDQUOT))


def write_atomically(path: Path, content: str | bytes) -> None:
    """The whole content or nothing."""
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
