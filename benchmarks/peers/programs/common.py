"""What every program shares: the work to do, and a clock. NumPy and the standard library only."""

import json
import os
import resource
import statistics
import sys
import time
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

TICKS = os.sysconf("SC_CLK_TCK")
EVALUATED_AT_ONCE = 1000


@dataclass(frozen=True)
class Settings:
    """What is trained, and how much each worker does per round: an epoch of ``steps`` batches."""

    network: str  # mlp | lenet5
    data: str  # as this platform names it
    num_workers: int
    cohort: int
    steps: int
    batch: int
    rate: float
    seed: int


@dataclass(frozen=True)
class Work(Settings):
    """The settings with samples, and which worker has which."""

    train_x: np.ndarray  # float32, normalised, (n, channels, height, width)
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    split: np.ndarray  # (workers, samples of each)


def read_settings(folder: Path) -> Settings:
    return Settings(**json.loads((folder / "settings.json").read_text(encoding="utf-8")))


def load(folder: Path) -> Work:
    """Read the work that ``benchmarks.peers.work`` wrote."""
    with np.load(folder / "samples.npz") as file:
        mean, std = (file[name].astype(np.float32).reshape(1, -1, 1, 1) for name in ("mean", "std"))
        images = {part: (file[part].astype(np.float32) / 255 - mean) / std for part in ("train_x", "test_x")}
        others = {name: file[name] for name in ("train_y", "test_y", "split")}
    return Work(**vars(read_settings(folder)), **images, **others)


def processes() -> list[int]:
    """This process and all that it started, directly or not; this one alone where there is no /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(fields(entry)[1])
        except OSError:  # it has ended meanwhile
            continue
    found = [os.getpid()]
    for pid in found:  # grows while it is read
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def fields(stat: Path) -> list[str]:
    """The fields of /proc/PID/stat behind the command's name, which may have any characters."""
    return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of processes and of their children that have ended."""
    total = 0
    for pid in pids:
        try:
            total += sum(int(value) for value in fields(Path(f"/proc/{pid}/stat"))[11:15])
        except OSError:
            continue
    return total / TICKS if total else time.process_time()


def peak_megabytes(pids: list[int]) -> float:
    """The sum of the largest resident sizes; memory that processes share counts in each."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return (total or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024


@dataclass
class Clock:
    """Times rounds after some that warm up, and writes what it saw to a file."""

    warm_up: int
    rounds: int
    file: Path
    accuracy: float = 0.0
    _ends: list[float] = field(default_factory=list)
    _cpu: float = 0.0
    _report: dict[str, Any] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Rounds to do, those that warm up included."""
        return self.warm_up + self.rounds

    def tick(self, accuracy: float) -> None:
        """A round has ended, its evaluation included."""
        self._ends.append(time.perf_counter())
        self.accuracy = float(accuracy)
        if len(self._ends) == self.warm_up:
            self._cpu = cpu_seconds(processes())
        elif len(self._ends) == self.total:
            alive = processes()
            spans = np.diff(self._ends[self.warm_up - 1 :])
            self._report = {
                "seconds": statistics.median(spans),
                "cpu_seconds": (cpu_seconds(alive) - self._cpu) / self.rounds,
                "megabytes": peak_megabytes(alive),
                "accuracy": self.accuracy,
            }

    def finish(self, *packages: str) -> None:
        """Write the report, with the versions of packages."""
        if not self._report:
            raise RuntimeError(f"{len(self._ends)} rounds have ended, not {self.total}")
        self._report["versions"] = {name: version_of(name) for name in packages}
        self.file.write_text(json.dumps(self._report), encoding="utf-8")


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def arguments() -> tuple[Path, Clock]:
    """The folder of the work and the clock, from the command line FOLDER WARM_UP ROUNDS REPORT."""
    folder, warm_up, rounds, report = sys.argv[1:]
    return Path(folder), Clock(int(warm_up), int(rounds), Path(report))


def begin() -> tuple[Work, Clock]:
    """The work and the clock that the command line names."""
    folder, clock = arguments()
    return load(folder), clock
