"""What a run uses of its machine over time: processor, memory and GPU, in `resources.jsonl` of its attempt."""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from fl_platform.config.regular_files import open_regular

FILE = "resources.jsonl"
CPU, MEMORY, GPU, GPU_MEMORY = "cpu_percent", "memory_bytes", "gpu_percent", "gpu_memory_bytes"
"""Names of the metrics; 100 % of a processor is one core at work."""
_MOST_BYTES = 4_000_000


class Usage:
    """The processor time and memory of this process and the processes it started, since the last look."""

    def __init__(self) -> None:
        self._time, self._spent = time.monotonic(), _processor_seconds()

    @property
    def seconds(self) -> float:
        """Since the last look."""
        return time.monotonic() - self._time

    def look(self) -> dict[str, float]:
        """The values of the time since the last look."""
        now, spent = time.monotonic(), _processor_seconds()
        share = 100 * (spent - self._spent) / max(now - self._time, 1e-9)
        self._time, self._spent = now, spent
        return {CPU: round(share, 1), MEMORY: memory_bytes()}


def _processor_seconds() -> float:
    return sum(os.times()[:4])


def memory_bytes() -> int:
    """The resident memory of this process; where the system does not tell it, the most it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return int(peak if sys.platform == "darwin" else 1024 * peak)
    return pages * os.sysconf("SC_PAGE_SIZE")


def read(path: Path) -> dict[str, list[float]]:
    """The metrics of a file by name, and ``seconds`` since its first row; empty without a file.

    Damaged rows are left out, and of a large file only the end is read.
    """
    try:
        with open_regular(path) as file:
            start = max(0, file.seek(0, 2) - _MOST_BYTES)
            file.seek(start)
            lines = file.read().decode(errors="replace").splitlines()[bool(start) :]
    except OSError:
        return {}
    rows = [row for line in lines if (row := _row(line)) is not None]
    if not rows:
        return {}
    names = [name for name in (CPU, MEMORY, GPU, GPU_MEMORY) if all(name in row for row in rows)]
    first = rows[0]["time"]
    return {"seconds": [row["time"] - first for row in rows], **{name: [row[name] for row in rows] for name in names}}


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_whole = isinstance(row, dict) and "time" in row
    return row if is_whole and all(isinstance(value, int | float) for value in row.values()) else None
