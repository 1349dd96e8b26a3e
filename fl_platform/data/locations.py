"""Where data lies on this machine."""

import os
from pathlib import Path

import platformdirs


def cache_directory() -> Path:
    """The directory for downloads and decoded images in the user's cache."""
    return Path(platformdirs.user_cache_dir("fl_platform"))


def roots(root: str | Path | None = None) -> list[Path]:
    """Directories searched for data, in order: ``root`` (``data.root``), $FL_DATA_ROOT, the user cache."""
    given = [root, os.environ.get("FL_DATA_ROOT")]
    return [Path(place).expanduser() for place in given if place] + [cache_directory() / "data"]
