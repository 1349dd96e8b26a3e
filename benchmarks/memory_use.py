"""Peak memory of W1 under every algorithm, each in a process of its own, and whether it grows from round to round."""

import math
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.clock import Ratio
from benchmarks.federation import run, w1_arguments
from benchmarks.machine import cores
from benchmarks.processes import environment
from benchmarks.table import Entry
from fl_platform.algorithms import base
from fl_platform.data import datasets
from fl_platform.errors import UserError

BASE = 600 * 10**6  # bytes: Python, PyTorch, Lightning, W&B
SOME = ("gradma",)  # under --quick: the one with every kind of state


PROGRAM = """
import sys
from benchmarks.machine import peak_bytes
from fl_platform.cli import main
code = main(sys.argv[1:])
print(peak_bytes())
sys.exit(code)
"""


def peak_of(args: list[str]) -> int:
    """The largest resident size of a process that does one run."""
    command = [sys.executable, "-c", PROGRAM, "run", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if done.returncode:
        raise UserError(f"a run for the benchmark failed: {' '.join(done.stderr.split())[-300:]}")
    return int(done.stdout.split()[-1])


def tensors(state: Any) -> list[Tensor]:
    """Every tensor in nested dictionaries and lists."""
    if isinstance(state, dict | list):
        parts = state.values() if isinstance(state, dict) else state
        return [tensor for value in parts for tensor in tensors(value)]
    return [state] if isinstance(state, Tensor) else []


def state_slots(checkpoint: Path) -> tuple[int, int]:
    """Vectors of d floats that outlive a round besides the model, and d."""
    saved = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
    size = saved["state_dict"]["global_params"].numel()
    kept = tensors(saved["callbacks"]) + tensors(saved["federated"])
    return math.ceil(sum(tensor.numel() for tensor in kept) / size), size


def data_bytes(args: list[str]) -> int:
    """Raw bytes of all images, and the evaluated ones in float32."""
    name = next(word.removeprefix("data.name=") for word in args if word.startswith("data.name="))
    train, test = datasets.load(name)
    return train.features.numel() + 5 * test.features.numel()


def measured(name: str, rounds: int, data: int) -> tuple[float, str]:
    """An algorithm's peak over what it is allowed, and a line about it."""
    needs = (need.partition("|")[0] for need in base.get(name).needs if not need.startswith("model."))  # W1's suits all
    with tempfile.TemporaryDirectory(prefix="fl_platform-bench-") as directory:
        own = [f"algorithm.name={name}", *needs, f"num_rounds={rounds}", f"output.dir={directory}"]
        used = peak_of(w1_arguments(*own))
        slots, size = state_slots(next(Path(directory).rglob("*.ckpt")))
    allowed = data + (2 + slots) * size * 4 + BASE
    return used / allowed, f"{name:12} {used / 1e6:6.0f} MB of {allowed / 1e6:.0f} MB allowed, {slots} state slots"


def peak(quick: bool) -> list[Entry]:
    """The worst algorithm's peak over data + (2 + state slots) d floats + 600 MB; a process a core, none is timed."""
    names, rounds = (SOME, 5) if quick else (tuple(base.names()), 12)
    data = data_bytes(w1_arguments())
    with ThreadPoolExecutor(cores()) as pool:
        found = list(pool.map(lambda name: measured(name, rounds, data), names))
    worst, why = max(share for share, _ in found), tuple(line for _, line in found)
    return [Entry("peak_memory_w1_all_algorithms", Ratio(worst), "x allowed", "<= 1", why)]


def growth(quick: bool) -> list[Entry]:
    """Memory a round adds to FedAvg, which keeps nothing but its history, in the second half of a run."""
    finished = run(w1_arguments("local_steps=1", "batch_size=8", "evaluation.every=1000"), 100 if quick else 600)
    seen = finished.watch.memory
    middle = len(seen) // 2
    value = (seen[-1] - seen[middle]) / (len(seen) - 1 - middle) / 1000
    return [Entry("memory_growth_w1_fedavg", Ratio(value), "kB a round", "<= 10")]
