"""What a run records about itself and the code that made it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fl_platform.config.registry import ALGORITHMS, DATASETS
from fl_platform.config.resolve import RunSpec
from fl_platform.config.schema import Config, to_dict
from fl_platform.runs.record import PROVENANCE, RunRecord

PACKAGES = ("torch", "torchvision", "lightning", "wandb", "numpy", "scipy", "numba", "omegaconf", "cvxpylayers")


def describe(spec: RunSpec) -> RunRecord:
    """All that is known of a run before its first round, for its directory and for W&B alike."""
    config, tracking = spec.config, spec.config.tracking
    return RunRecord(
        source="",
        run_id=spec.run_id,
        entity=tracking.entity or "",
        project=tracking.project,
        name=spec.name,
        group=tracking.group or spec.group,
        sweep=os.environ.get("WANDB_SWEEP_ID", ""),
        tags=(spec.algorithm, config.data.name, *tracking.tags),
        host=socket.gethostname(),
        started=time.time(),
        config={
            **to_dict(config),
            PROVENANCE: {"id": spec.run_id, "group": spec.group_id, **labels(config), **provenance()},
        },
    )


def labels(config: Config) -> dict[str, str]:
    """How tables and figures call a run's method and data set, and where the method stands among the others.

    Reports read them from the run: they cannot import a plugin that defines a method or a data set.
    """
    method, dataset = ALGORITHMS.get(config.algorithm["name"]), DATASETS.get(config.data.name)
    return {"label": method.label, "kind": method.kind, "method_group": method.group, "data_label": dataset.label}


def provenance() -> dict[str, Any]:
    """Commit, whether the checkout differs from it, and package versions."""
    return {**git_state(), "versions": dict(versions())}


@cache
def versions() -> Mapping[str, str | None]:
    """Package -> installed version, None without it, of the packages that numbers depend on."""
    return {name: installed(name) for name in PACKAGES}


def installed(name: str) -> str | None:
    """The installed version of a package; None without one."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def installed_packages() -> list[str]:
    """``name==version`` of every installed package, by the names of its metadata directories: nothing is opened."""
    folders = (name for place in sys.path if os.path.isdir(place) for name in os.listdir(place))
    named = (name.removesuffix(".dist-info").partition("-") for name in folders if name.endswith(".dist-info"))
    return sorted({f"{name}=={version}" for name, _, version in named})


def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the checkout this package is run from; nulls for an installed package."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return {"commit": None, "dirty": None}

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}
