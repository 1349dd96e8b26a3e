"""What a run records about the code that made it."""

import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "torchvision", "lightning", "wandb", "numpy", "scipy", "numba", "omegaconf", "cvxpylayers")


def provenance() -> dict[str, Any]:
    """Commit, whether the checkout differs from it, and package versions."""
    return {**git_state(), "versions": {name: installed(name) for name in PACKAGES}}


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the checkout this package is run from; nulls for an installed package."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return {"commit": None, "dirty": None}

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}
