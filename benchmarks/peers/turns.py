"""Runs the peers' programs in turns, each in a process of its own, and collects what their clocks saw."""

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fl_platform
from benchmarks.peers.catalogue import PROGRAMS, Peer
from benchmarks.peers.environments import last_line

LONGEST = 900  # seconds of one program


class NotRun(Exception):
    """A program failed; the message says why."""


@dataclass(frozen=True)
class Measured:
    """What one peer needs per round, medians over turns, or why it has no numbers."""

    peer: Peer
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    megabytes: float = 0.0
    accuracy: float = 0.0
    versions: Mapping[str, str] = ()  # type: ignore[assignment]
    failure: str | None = None


def measure(
    pythons: Sequence[tuple[Peer, Path]],
    folder: Path,
    *,
    turns: int,
    warm_up: int,
    rounds: int,
    cores: int,
    say: Callable[[str], None],
) -> list[Measured]:
    """Every peer once per turn, in their order; one that fails does not run again."""
    reports: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer, _ in pythons}
    failures: dict[str, str] = {}
    for turn in range(turns):
        for peer, python in pythons:
            if peer.name in failures:
                continue
            say(f"{folder.name}, turn {turn + 1} of {turns}: {peer.name}")
            try:
                reports[peer.name].append(run(peer, python, folder, warm_up, rounds, cores))
            except NotRun as error:
                failures[peer.name] = str(error)
    return [summary(peer, reports[peer.name], failures.get(peer.name)) for peer, _ in pythons]


def summary(peer: Peer, reports: list[dict[str, Any]], failure: str | None) -> Measured:
    """Medians over the turns of a peer."""
    if failure is not None:
        return Measured(peer, failure=failure)
    names = ("seconds", "cpu_seconds", "megabytes", "accuracy")
    medians = {name: statistics.median(report[name] for report in reports) for name in names}
    return Measured(peer, **medians, versions=reports[0]["versions"])


def run(peer: Peer, python: Path, folder: Path, warm_up: int, rounds: int, cores: int) -> dict[str, Any]:
    """One program from start to end on so many cores; its report. Raises ``NotRun``."""
    with tempfile.TemporaryDirectory(prefix="fl_platform-peers-") as place:
        report = Path(place) / "report.json"
        command = [str(python), str(peer.path), str(folder.absolute()), str(warm_up), str(rounds), str(report)]
        try:
            done = subprocess.run(
                [*on_cores(cores), *command],
                capture_output=True,
                text=True,
                check=False,
                env=environment(peer, cores),
                cwd=place,
                timeout=LONGEST,
            )
        except subprocess.TimeoutExpired:
            raise NotRun(f"it did not end within {LONGEST} s") from None
        if done.returncode or not report.is_file():
            raise NotRun(f"exit code {done.returncode}: {last_line(done.stderr or done.stdout)}")
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return found


def on_cores(count: int) -> list[str]:
    """The prefix of a command that may use the first so many cores of those this process has; Linux only."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))[:count]
    return ["taskset", "--cpu-list", ",".join(map(str, cores))]


def environment(peer: Peer, cores: int) -> dict[str, str]:
    """A thread per core for every library, nothing sent anywhere; only this platform's program finds this package."""
    places = [str(PROGRAMS)]
    if peer.environment is None:
        places.append(str(Path(fl_platform.__file__).parents[1]))
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(places),
        "OMP_NUM_THREADS": str(cores),
        "MKL_NUM_THREADS": str(cores),
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={str(cores > 1).lower()} intra_op_parallelism_threads={cores}",
        "JAX_PLATFORMS": "cpu",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "WANDB_MODE": "offline",
    }
