"""Checkpoint files by name: `round-<number>-<digest>.ckpt`, where the digest is of the content.

`best-<number>-<digest>.ckpt` is the model with the best accuracy so far, where it is kept: a run cannot go on from it.
"""

import contextlib
import hashlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from fl_platform.config.regular_files import open_regular

CHECKPOINTS = "checkpoints"
"""The directory of them in an attempt."""
_NAME = re.compile(r"round-(\d+)-([0-9a-f]{16})\.ckpt")
_BEST = re.compile(r"best-(\d+)-([0-9a-f]{16})\.ckpt")


def file_name(round: int, content: Path) -> str:
    """The name of a checkpoint of a round whose content is in a file."""
    return f"round-{round:06d}-{digest(content)}.ckpt"


def best_name(round: int, content: Path) -> str:
    """The name of the best model, of a round, whose content is in a file."""
    return f"best-{round:06d}-{digest(content)}.ckpt"


def best_files(directory: Path) -> list[Path]:
    """Files of best models, the newest round last: one, or two where a process was killed between writing and
    removing."""
    return sorted(path for path in directory.glob("best-*.ckpt") if _BEST.fullmatch(path.name))


def round_of(path: Path) -> int:
    """The round in the name of a checkpoint or of a best model."""
    return int(path.name.split("-")[1])


def digest(path: Path) -> str:
    """The first 16 hexadecimal digits of a file's SHA-256."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def sorted_checkpoints(directory: Path) -> list[tuple[int, Path]]:
    """(round, file), the newest first."""
    found = [(_NAME.fullmatch(path.name), path) for path in directory.glob("round-*.ckpt")]
    return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)


def newest_valid(directory: Path) -> Path | None:
    """The newest checkpoint whose content matches its name; damaged ones are named on stderr and passed over."""
    for _, path in sorted_checkpoints(directory):
        if is_valid(path):
            return path
        print(f"checkpoint {path} is damaged; falling back to the one before", file=sys.stderr)
    return None


def is_valid(path: Path) -> bool:
    """Whether a file is named like a checkpoint and has the content its name states."""
    match = _NAME.fullmatch(path.name) or _BEST.fullmatch(path.name)
    return match is not None and path.is_file() and digest(path) == match[2]  # a FIFO would never end


def resumed_from(directory: Path) -> list[Path]:
    """The files that a run could go on from: its checkpoints and the rows they name; the best model is none of them."""
    return [*(path for _, path in sorted_checkpoints(directory)), *_row_files(directory)]


def drop_checkpoints(directory: Path) -> None:
    """Remove what a run could go on from; the best model stays."""
    for path in resumed_from(directory):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # absent, or not empty
        directory.rmdir()


def remove_rows(directory: Path, kept: Iterable[str] = ()) -> None:
    """Remove the files of rows in a directory but for those named."""
    names = set(kept)
    for path in _row_files(directory):
        if path.name not in names:
            path.unlink(missing_ok=True)


def _row_files(directory: Path) -> list[Path]:
    return list(directory.glob("rows-*.jsonl.gz"))
