"""Where data lies on this machine."""

import os
from pathlib import Path

import platformdirs


def cache_directory() -> Path:
    """The directory for downloads and decoded images in the user's cache."""
    return Path(platformdirs.user_cache_dir("fl_platform"))


def roots(root: str | Path | None = None) -> list[Path]:
    """Directories searched for data: ``root`` (``data.root``) alone if given, else $FL_DATA_ROOT and the user cache."""
    if root:
        return [Path(root).expanduser()]
    given = os.environ.get("FL_DATA_ROOT")
    return ([Path(given).expanduser()] if given else []) + [cache_directory() / "data"]
