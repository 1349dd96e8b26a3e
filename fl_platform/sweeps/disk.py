"""What runs take on the disk: a warning before a sweep fills it, and the checkpoints that can go."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fl_platform.runs.checkpoint_files import CHECKPOINTS, drop_checkpoints, resumed_from
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.writing import bytes_text
from fl_platform.sweeps.ledger import Ledger


class DiskUse:
    """What the runs of a sweep have taken so far, and whether those that are left will fit."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._sizes: list[int] = []

    def add(self, run: RunDirectory) -> None:
        """Count a run that has ended."""
        self._sizes.append(sum(map(size_of, run.path.rglob("*"))))

    def warning(self, left: int) -> str:
        """A sentence where so many runs more would not fit; else empty."""
        if not self._sizes:
            return ""
        mean, free = sum(self._sizes) / len(self._sizes), shutil.disk_usage(self._output).free
        if left * mean <= free:
            return ""
        needed, each, there = map(bytes_text, (left * mean, mean, free))
        return (
            f"{left} runs are left, which would take {needed} at {each} each, and output.dir={self._output} has "
            f"{there}; checkpoint.keep_finished=false drops the checkpoints of a run that has its result, and "
            "`sweep prune` those that are there"
        )


@dataclass(frozen=True)
class Pruned:
    """What ``prune`` removed, or would."""

    runs: int = 0
    bytes: int = 0
    kept: int = 0  # runs without a result: they go on from their checkpoints


def prune(runs: Iterable[RunDirectory], *, is_dry: bool = False) -> Pruned:
    """Drop the checkpoints of runs that have their result; the result, the rounds and the best model stay."""
    count = freed = kept = 0
    for run in runs:
        if not run.checked_result()[0]:
            kept += any(resumed_from(attempt / CHECKPOINTS) for attempt in run.all_attempts())
            continue
        rounds = run.counted_rounds(has_result=True)
        files = resumed_from(rounds.parent / CHECKPOINTS) if rounds else []  # a newer attempt may be at work
        if rounds and files:
            count, freed = count + 1, freed + sum(map(size_of, files))
            if not is_dry:
                drop_checkpoints(rounds.parent / CHECKPOINTS)
    return Pruned(count, freed, kept)


def runs_of_sweep(ledger: Ledger, output: Path) -> Iterator[RunDirectory]:
    """The runs of a sweep's trials, each once."""
    for run_id in dict.fromkeys(entry.run_id for entry in ledger.entries()):
        if run_id:
            yield RunDirectory(output, run_id)


def runs_in(output: Path) -> Iterator[RunDirectory]:
    """The runs in a directory."""
    for attempts in sorted(output.glob("*/attempts")):
        yield RunDirectory(output, attempts.parent.name)


def size_of(path: Path) -> int:
    """Bytes of a file; 0 for a directory, and for what is gone meanwhile."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0
