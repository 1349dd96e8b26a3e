"""Runs in processes of their own, one or several ranks, timed by the stamps of their W&B logs."""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import fl_platform
from benchmarks.clock import Ratio
from benchmarks.federation import WARM_UP, w1_arguments
from benchmarks.table import Entry
from fl_platform.errors import UserError
from fl_platform.runs import wandb_logs
from fl_platform.runs.sources import discover


def round_seconds(args: list[str], rounds: int) -> float:
    """The median round of `python -m fl_platform run`, evaluation, logging and all."""
    with tempfile.TemporaryDirectory(prefix="fl_platform-bench-") as directory:
        args = [*args, f"num_rounds={WARM_UP + rounds + 1}", f"output.dir={directory}"]
        command = [sys.executable, "-m", "fl_platform", "run", *args]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
        if done.returncode:
            raise UserError(f"a run for the benchmark failed: {' '.join(done.stderr.split())[-300:]}")
        [log] = discover(Path(directory)).logs
        stamps: list[float] = wandb_logs.read(log).history["_timestamp"].to_pylist()
    steps = [after - before for before, after in zip(stamps[WARM_UP:-2], stamps[WARM_UP + 1 : -1], strict=True)]
    return statistics.median(steps)


def environment() -> dict[str, str]:
    """This package must be found from any directory."""
    places = [str(Path(fl_platform.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


def two_ranks(quick: bool) -> list[Entry]:
    """A cohort of fifty over two processes, against one."""
    rounds = 4 if quick else 8
    args = w1_arguments("cohort_size=50")
    one = round_seconds(args, rounds)
    two = round_seconds([*args, "trainer.strategy=ddp", "trainer.devices=2"], rounds)
    why = (f"{1000 * one:.0f} ms a round in one process, {1000 * two:.0f} ms in two",)
    return [Entry("ddp_2_processes_s_50", Ratio(one / two), "x rounds/s of 1 process", ">= 1.5", why)]
