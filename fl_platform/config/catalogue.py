"""The descriptions of all built-in names, kept in the user's cache so that reading a configuration imports no torch.

The file is named after the size and time of every source of the package: after a change it is another file, and the
first command writes it. Nothing reads an outdated one, and where the cache cannot be written commands are only slower.
"""

import hashlib
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

KEPT = 16
"""Catalogues kept: one per checkout and version in use."""

Catalogue = dict[str, dict[str, dict[str, Any]]]
"""Key of a registry -> name -> the content of its description."""


@cache
def path() -> Path:
    """The file that belongs to the sources of this process."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256(f"{root} {sys.version}".encode())
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for file in sorted(name for name in files if name.endswith(".py")):
            place = os.path.join(folder, file)
            status = os.stat(place)
            digest.update(f"{place} {status.st_size} {status.st_mtime_ns}\n".encode())
    return Path(platformdirs.user_cache_dir("fl_platform")) / "catalogue" / f"{digest.hexdigest()[:24]}.json"


@cache
def read() -> Catalogue | None:
    """The catalogue of these sources; None where there is none yet."""
    try:
        found: Catalogue = json.loads(path().read_bytes())
    except (OSError, ValueError):
        return None
    return found


def write(catalogue: Catalogue) -> None:
    """Keep a catalogue for the next process, and drop the oldest ones; does nothing where the cache is read-only."""
    file = path()
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(catalogue), encoding="utf-8")
        os.replace(partial, file)
        for old in sorted(file.parent.glob("*.json"), key=lambda place: place.stat().st_mtime)[:-KEPT]:
            old.unlink()
    except OSError:
        return  # another process may have dropped the same file, or nothing may be written here
