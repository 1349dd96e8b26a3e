"""Hours in a minute: a dashboard over sweeps that come and go, a launcher of many trials, a run of many rounds."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fl_platform as fl
from fl_platform.dashboard.store import Store
from fl_platform.dashboard.views import Views
from fl_platform.federation.checkpoints import AtomicCheckpointIO
from fl_platform.sweeps.definition import read_sweep
from fl_platform.sweeps.ledger import Ledger
from fl_platform.sweeps.states import TrialState
from tests.dashboard.made_runs import write_run

Scale = Callable[[int, int], int]
Record = Callable[[str, object], None]


def resident_bytes(pid: int | str = "self") -> int:
    """Memory of a process, as the system counts it."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def make_sweep(root: Path, number: int, runs: int) -> Path:
    """An ended sweep with its ledger and run directories, below a folder of its own."""
    place = root / f"day{number}"
    definition = place / "sweep.yaml"
    place.mkdir(parents=True)
    definition.write_text(
        f"name: s{number}\nmethod: grid\ncommand: [python, -m, fl_platform, run, '${{args_no_hyphens}}']\n"
        f"parameters:\n  seed: {{values: {list(range(runs))}}}\n"
    )
    directory = place / "sweeps" / f"s{number}-0"
    directory.mkdir(parents=True)
    shutil.copyfile(definition, directory / "sweep.yaml")
    read_sweep(definition)
    with Ledger(directory) as ledger:
        ledger.propose([{"seed": seed} for seed in range(runs)])
        for seed in range(runs):
            ledger.record(seed, TrialState.STARTED, run_id=f"r{number}x{seed}", attempt=1)
            ledger.record(seed, TrialState.FINISHED, run_id=f"r{number}x{seed}", attempt=1, data={"summary": {}})
    for seed in range(runs):
        write_run(place, f"r{number}x{seed}", seed=seed)
    return place


def test_a_dashboard_over_sweeps_that_come_and_go_stays_as_small_as_it_was(
    tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    """Three sweeps are there at any time; each look finds one more and one less, also in the middle of the look."""
    looks, runs = scale(6, 120), 5
    store = Store(tmp_path)
    views = Views(store)
    sizes, handles = [], []
    for look in range(looks):
        make_sweep(tmp_path, look, runs)
        vanishing = threading.Thread(target=shutil.rmtree, args=(tmp_path / f"day{look - 3}", True))
        vanishing.start()
        store.look()  # while a sweep vanishes
        views.overview({})
        views.select({"q": "seed<3"})
        vanishing.join()
        state = store.look()
        assert {run.split("x")[0] for run in state.runs} == {
            f"r{number}" for number in range(max(0, look - 2), look + 1)
        }
        assert len(views.overview({})["runs"]) == len(state.runs) <= 3 * runs
        gc.collect()
        sizes.append(resident_bytes())
        handles.append(len(os.listdir("/proc/self/fd")))
    assert len(store._readers) == len(state.runs) == len(views._rows) == 3 * runs
    assert len(store._sweeps) == 3
    settled = looks // 4
    assert max(handles[settled:]) <= handles[settled] + 2
    grown = (sizes[-1] - sizes[settled]) / (looks - settled)
    if looks > 100:  # before that, caches fill
        assert grown < 20_000, f"{grown:.0f} bytes per look"
    record_property("dashboard: sweeps that came and went", looks)
    record_property("dashboard: bytes of memory per sweep that came and went", round(grown))


STUB = """#!/bin/sh
mkdir -p "runs/$WANDB_RUN_ID/attempts"
printf '{"run": "%s", "status": "finished", "rounds": 1, "test/top_accuracy": 0.5}' "$WANDB_RUN_ID" \\
  > "runs/$WANDB_RUN_ID/result.json"
echo ran >> "ran/$WANDB_RUN_ID"
"""

WATCHED = """
import gc, json, os, signal, sys
from pathlib import Path
from fl_platform.cli import main
from fl_platform.sweeps.launcher import Launcher
from tests.torture.test_long_life import resident_bytes

sizes, ended, dies_after = [], 0, int(sys.argv[1])
record = Launcher._record
def watched(self, *arguments):
    global ended
    record(self, *arguments)
    ended += 1
    if ended % 50 == 0:
        gc.collect()  # or cycles of the last trials would count
        sizes.append((ended, resident_bytes()))
    if ended == dies_after:
        os.kill(os.getpid(), signal.SIGKILL)
Launcher._record = watched
code = main(["sweep", "run", "many.yaml", "--jobs", "4"])
Path("sizes.json").write_text(json.dumps(sizes))
sys.exit(code)
"""


def test_a_launcher_of_many_tiny_trials_stays_as_small_as_it_was(
    tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    """Trials are real processes of a shell script; the launcher is killed in the middle, and another goes on.

    FL_TORTURE_TRIALS=10000 makes it that many.
    """
    trials = scale(0, int(os.environ.get("FL_TORTURE_TRIALS", "1000")))
    if not trials:
        pytest.skip("a thousand processes: only with --torture")
    (tmp_path / "stub").write_text(STUB)
    (tmp_path / "stub").chmod(0o755)
    (tmp_path / "ran").mkdir()
    (tmp_path / "many.yaml").write_text(
        "name: many\nmethod: grid\n"
        "command: [./stub, -m, fl_platform, run, --skip-finished, output.dir=runs, '${args_no_hyphens}']\n"
        f"parameters:\n  seed: {{values: {list(range(trials))}}}\n"
    )
    codes = []
    for dies_after in (trials // 3, -1):
        command = [sys.executable, "-c", WATCHED, str(dies_after)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        codes.append(subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True).returncode)
    assert codes == [-signal.SIGKILL, 0]
    assert [path.read_text() for path in (tmp_path / "ran").iterdir()] == ["ran\n"] * trials, "none lost, none twice"
    (ledger,) = (tmp_path / "runs" / "sweeps").glob("many-*/ledger.sqlite")
    per_trial = ledger.stat().st_size / trials
    sizes = json.loads((tmp_path / "sizes.json").read_text())
    (before, small), (after, large) = sizes[len(sizes) // 3], sizes[-1]
    grown = (large - small) / (after - before)
    record_property("launcher: trials in processes of their own, each once, one kill of the launcher", trials)
    record_property("launcher: bytes of ledger per trial", round(per_trial))
    record_property("launcher: bytes of memory per trial", round(grown))
    assert per_trial < 4_000
    assert grown < 20_000


def test_a_run_of_many_rounds_stays_as_small_and_as_quick_as_it_was(
    tmp_path: Path, scale: Scale, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, every = scale(0, 10_000), 250
    if not rounds:
        pytest.skip("ten thousand rounds: only with --torture")
    sizes, seconds, lengths = [], [], []
    save = AtomicCheckpointIO.save_checkpoint

    def watched(self: AtomicCheckpointIO, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        began = time.process_time()
        save(self, checkpoint, path, storage_options)
        seconds.append(time.process_time() - began)
        lengths.append(len(checkpoint["federated"]["history"]))
        sizes.append(resident_bytes())

    monkeypatch.setattr(AtomicCheckpointIO, "save_checkpoint", watched)
    result = fl.run(
        {
            "num_workers": 10,
            "cohort_size": 2,
            "local_steps": 1,
            "batch_size": 8,
            "num_rounds": rounds,
            "evaluation.every": rounds,
            "checkpoint.every": every,
            "tracking.mode": "disabled",
            "trainer.enable_progress_bar": False,
        },
        output={"dir": tmp_path},
    )
    assert result.rounds["round"].tolist() == list(range(1, rounds + 1))
    third = len(seconds) // 3
    first, last = (sorted(part)[len(part) // 2] for part in (seconds[:third], seconds[-third:]))
    grown = (sizes[-1] - sizes[third]) / (rounds * 2 / 3)
    assert result.attempt is not None
    log = (result.attempt / "rounds.jsonl").stat().st_size
    record_property("long run: rounds", rounds)
    record_property("long run: CPU ms of a checkpoint, first and last third", f"{first * 1e3:.1f}, {last * 1e3:.1f}")
    record_property("long run: bytes of memory per round", round(grown))
    record_property("long run: bytes of rounds.jsonl per round", round(log / rounds))
    assert max(lengths) < 1_000_000
    assert last < 2 * first
    assert grown < 500
