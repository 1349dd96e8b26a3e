"""The machine a benchmark ran on, and the arithmetic it is capable of."""

import os
import platform
import resource
import sys
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.clock import Seconds, timed

SIDE = 768
SGEMM_FLOP = 2 * SIDE**3
"""Matrices of 2.4 MB: far larger than any layer's, so that the rate is the machine's best."""


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _matrices() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(SIDE, SIDE, generator=generator) for _ in range(2))
    return left, right, torch.empty(SIDE, SIDE)


def sgemm() -> Seconds:
    """One float32 matrix product on the threads torch has now."""
    left, right, out = _matrices()
    return timed(lambda: torch.mm(left, right, out=out))


def memory_bytes() -> int:
    """Resident memory of this process; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The largest resident size this process had; by the kernel's own count, since rusage adds the parent's at fork."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def description() -> dict[str, str]:
    """What a figure depends on besides the code."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "lightning", "wandb", "numpy"))
    return {
        "processor": f"{processor()}, {cores()} cores",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "packages": packages,
        "load before": load,
    }
