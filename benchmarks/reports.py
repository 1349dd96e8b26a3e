"""Reports over many runs and the status of a large sweep, by wall clock and CPU time, in processes of their own.

    python -m benchmarks.reports                                  # 1,000 runs of 1,000 rounds, 10,000 trials
    python -m benchmarks.reports --runs 10000 --rounds 100
    python -m benchmarks.reports --keep build/bench/reports       # written once, used again by later calls

Runs are written as `run` leaves them, by the same code: a real one of each method, of three rounds, says which keys a
round has and how large the values are. "First" is without the cache beside the runs, "again" with it; the system may
have the files themselves in memory in both. CPU time is user and system, helping processes included; memory is that of
the largest process, but no less than the 90 MB of this one, which the system counts as well.
"""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fl_platform.runs import cache, metrics
from fl_platform.runs.directory import RunDirectory, json_text, rounds_file
from fl_platform.runs.parallel import num_cores
from fl_platform.runs.sources import discover
from fl_platform.runs.status import RunStatus
from fl_platform.runs.writing import write_atomically
from fl_platform.sweeps.definition import make_sweep
from fl_platform.sweeps.ledger import Ledger
from fl_platform.sweeps.proposals import grid
from fl_platform.sweeps.states import TrialState

METHODS = ("fedavg", "fedprox", "scaffold", "gradma")
OMEGAS = (0.01, 0.05, 0.1, 0.5, 1.0)
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
REAL_ROUNDS = 3
REPORT: dict[str, Any] = {
    "title": "Many runs",
    "select": "best",
    "tables": [
        {"kind": "statistic", "name": "top", "value": "top_accuracy"},
        {"kind": "statistic", "name": "late", "value": "late_accuracy"},
    ],
    "figures": [{"kind": "curves", "name": "curves"}],
}
Row = dict[str, Any]


def settings(count: int) -> Iterator[list[str]]:
    """The arguments of so many different runs: every method, omega and rate with one seed, then with the next."""
    points = list(itertools.product(OMEGAS, RATES, METHODS))
    for number in range(count):
        seed, place = divmod(number, len(points))
        omega, rate, method = points[place]
        keys = [f"algorithm.name={method}", f"data.dirichlet_omega={omega}", f"local_lr={rate}", f"seed={seed}"]
        yield ["data.name=digits", *keys]


def real_run(method: str) -> tuple[Row, dict[str, Any]]:
    """The last row and the summary of a short run of a method."""
    with tempfile.TemporaryDirectory(prefix="fl_platform-bench-") as directory:
        keys = [f"algorithm.name={method}", "data.name=digits", f"num_rounds={REAL_ROUNDS}", "tracking.mode=disabled"]
        timed("run", *keys, f"output.dir={directory}")
        [path] = discover(Path(directory)).runs
        files = RunDirectory(path.parent, path.name)
        attempt = files.newest_attempt()
        assert attempt is not None
        return json.loads(rounds_file(attempt).read_text().splitlines()[-1]), files.result() or {}


def made_up_rows(real: Row, rounds: int, level: float, seed: int) -> list[Row]:
    """Rows with the keys of a real one: a saturating accuracy, everything else scattered around the real values."""
    random = np.random.default_rng(seed)
    accuracy = (level * (1 - np.exp(-np.arange(1, rounds + 1) / 50)) + random.normal(0, 0.01, rounds)).clip(0, 1)
    cohort = len(real[metrics.COHORT])
    columns: dict[str, list[Any]] = {}
    for name, value in real.items():
        if isinstance(value, list):
            columns[name] = random.random((rounds, len(value))).tolist()
        elif isinstance(value, int) or value == 0:
            columns[name] = [value] * rounds
        else:
            columns[name] = (value * random.uniform(0.9, 1.1, rounds)).tolist()
    columns |= {
        metrics.ROUND: list(range(1, rounds + 1)),
        metrics.COHORT: [random.choice(100, cohort, replace=False).tolist() for _ in range(rounds)],
        metrics.TEST_ACCURACY: accuracy.tolist(),
        metrics.TOP_ACCURACY: np.maximum.accumulate(accuracy).tolist(),
        metrics.FORGETTING: (np.maximum.accumulate(accuracy) - accuracy).tolist(),
        metrics.TOTAL_SECONDS: np.cumsum(columns[metrics.ROUND_SECONDS]).tolist(),
        metrics.TOTAL_BYTES: [real[metrics.TOTAL_BYTES] // REAL_ROUNDS * each for each in range(1, rounds + 1)],
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def write_run(output: Path, rounds: int, real: dict[str, tuple[Row, dict[str, Any]]], args: list[str]) -> None:
    """One run directory with its result, and the directory that W&B leaves beside it."""
    from fl_platform.config.compose import compose
    from fl_platform.config.resolve import resolve
    from fl_platform.tracking.identity import describe

    spec = resolve(compose([*args, f"num_rounds={rounds}", f"output.dir={output}"]))
    row, summary = real[spec.algorithm]
    level = 0.6 + 0.1 * np.log10(100 * spec.config.data.dirichlet_omega) + 0.3 * spec.config.local_lr
    rows = made_up_rows(row, rounds, level, int(spec.run_id, 16))
    files = RunDirectory(spec.output, spec.run_id)
    attempt = files.start_attempt()
    files.write_description(describe(spec))
    write_atomically(rounds_file(attempt), "".join(f"{json_text(row)}\n" for row in rows))
    accuracy = [row[metrics.TEST_ACCURACY] for row in rows]
    own = {
        "run": spec.run_id,
        metrics.ROUNDS: rounds,
        metrics.TOP_ACCURACY: max(accuracy),
        metrics.TOP_ACCURACY_ROUND: accuracy.index(max(accuracy)) + 1,
        metrics.FINAL_ACCURACY: accuracy[-1],
        metrics.TOTAL_BYTES: rows[-1][metrics.TOTAL_BYTES],
        metrics.TOTAL_SECONDS: rows[-1][metrics.TOTAL_SECONDS],
    }
    files.complete(attempt, {**summary, **own})
    log = output / "wandb" / f"offline-run-20260101_000000-{spec.run_id}" / f"run-{spec.run_id}.wandb"
    for folder in ("files", "logs", "tmp"):
        (log.parent / folder).mkdir(parents=True)
    log.touch()  # reports do not read the log of a run that has its result


def write_runs(output: Path, runs: int, rounds: int) -> None:
    """As many finished runs, written by one process per core."""
    real = {method: real_run(method) for method in METHODS}
    with ProcessPoolExecutor(num_cores(), multiprocessing.get_context("spawn")) as pool:
        list(pool.map(partial(write_run, output, rounds, real), settings(runs), chunksize=8))


def write_sweep(output: Path, trials: int) -> Path:
    """The directory of a sweep whose trials have all finished, with the four rows that each leaves in the ledger."""
    swept: dict[str, list[Any]] = {"algorithm.name": list(METHODS), "data.dirichlet_omega": list(OMEGAS)}
    swept["seed"] = list(range(-(-trials // (len(METHODS) * len(OMEGAS)))))
    parameters = {name: {"values": values} for name, values in swept.items()}
    config = {"name": "many", "parameters": parameters, "run_cap": trials}
    sweep = make_sweep(config, [f"output.dir={output}"])
    _, summary = real_run(METHODS[0])
    sweep.write_copy(sweep.directory)
    with Ledger(sweep.directory) as ledger:
        ledger.launch(list(sweep.overrides))
        ledger.keep_retries(1)
        ledger.propose(grid(sweep)[:trials])
        with ledger.transaction():
            for number in range(trials):
                about: dict[str, Any] = {"run_id": f"{number:012x}", "attempt": 1}
                ledger.record(number, TrialState.STARTED, **about)
                ledger.record(number, TrialState.STARTED, **about, pid=1)
                own = {"run": about["run_id"], metrics.TOP_ACCURACY: (number * 7919 % trials) / trials}
                data = {"summary": {**summary, **own}, "message": ""}
                ledger.record(number, TrialState(RunStatus.FINISHED), **about, data=data)
    return sweep.directory


def timed(*args: str, cwd: Path | None = None) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak megabytes of a command, those of the processes it starts included."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "fl_platform", *args]
    process = subprocess.Popen(command, cwd=cwd, env=environment(), stdout=subprocess.DEVNULL)
    _, code, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode:
        raise SystemExit(f"{' '.join(args)} ended with {process.returncode}")
    kilobytes = used.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, kilobytes / 1000


def environment() -> dict[str, str]:
    """This checkout must be found from any directory."""
    places = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)), "OMP_NUM_THREADS": "1"}


def measure(directory: Path, sizes: tuple[int, int, int], turns: int) -> Iterator[tuple[str, list[float]]]:
    """Each command and what it took; ``sizes`` are the numbers of runs, rounds and trials."""
    runs, rounds, trials = sizes
    source = directory / f"{runs}x{rounds}"
    if not source.exists():
        print(f"writing {runs:,} runs of {rounds:,} rounds to {source}", file=sys.stderr)
        unfinished = source.with_suffix(".partial")  # there after a call that was interrupted
        shutil.rmtree(unfinished, ignore_errors=True)
        write_runs(unfinished, runs, rounds)
        unfinished.rename(source)
    sweep = next((directory / f"{trials}-trials").glob("sweeps/*"), None) or write_sweep(
        directory / f"{trials}-trials", trials
    )
    write_atomically(directory / "reports" / "many" / "report.yaml", yaml.safe_dump(REPORT))
    table = ("report", "--source", str(source), "--rows", "algorithm.name", "--columns", "data.dirichlet_omega")
    report = ("report", "many", "--source", str(source), "--out", str(directory / "out"))
    for name, args in (("free table", table), ("two tables and a figure", report)):
        for _ in range(turns):
            shutil.rmtree(source / cache.NAME, ignore_errors=True)
            yield f"{name}, first", [*timed(*args, cwd=directory)]
        for _ in range(turns):
            yield f"{name}, again", [*timed(*args, cwd=directory)]
    for _ in range(turns):
        yield f"status of {trials:,} trials", [*timed("sweep", "status", str(sweep), cwd=directory)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Reports over many runs, and the status of a large sweep.")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=1, help="how often each command is measured")
    parser.add_argument("--quick", action="store_true", help="40 runs of 50 rounds and 200 trials")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the runs there, or use those that are there")
    chosen = parser.parse_args()
    sizes = (40, 50, 200) if chosen.quick else (chosen.runs, chosen.rounds, chosen.trials)
    with contextlib.ExitStack() as held:
        made = chosen.keep or held.enter_context(tempfile.TemporaryDirectory(prefix="fl_platform-bench-"))
        directory = Path(made).resolve()
        print(f"{'command':36} {'wall s':>8} {'CPU s':>8} {'peak MB':>8}")
        for name, (wall, cpu, peak) in measure(directory, sizes, chosen.turns):
            print(f"{name:36} {wall:8.2f} {cpu:8.2f} {peak:8.0f}", flush=True)


if __name__ == "__main__":
    main()
