"""Write the YAML files of `sweeps/` from the paper's definitions, the methods' own grids and measured times."""

import argparse
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

import fl_platform.algorithms  # noqa: F401  registers them
from fl_platform.algorithms import base
from fl_platform.config.options import walk
from fl_platform.config.schema import known_keys
from fl_platform.paper.benchmark import COMPARED, PERSONALISED, benchmark_sweeps
from fl_platform.paper.claims import claims
from fl_platform.paper.follow_up import follow_up_sweeps
from fl_platform.paper.methods import METHODS
from fl_platform.paper.scenarios import COLUMNS
from fl_platform.paper.sweeps import Axes, SweepDefinition, definitions
from fl_platform.runs.writing import write_atomically

COMMAND = [
    "${env}",
    "${interpreter}",
    "-m",
    "fl_platform",
    "run",
    "--skip-finished",
    "--continue",
    "tracking.mode=online",
    "${args_no_hyphens}",
]
"""``wandb agent`` runs it as it is; ``sweep run`` adds tracking.mode=offline and its own arguments, which win."""
ROUND_SECONDS = {"mnist": 0.07, "cifar10": 2.3, "cifar100": 110.0, "tiny_imagenet": 1100.0}
"""CPU seconds of a FedAvg round with S = 10 on one core, evaluation included; how measured is in docs/sweeps.md."""
BF16_SECONDS = {"cifar10": 0.75}  # the same with precision=bf16-mixed
DEMO_SECONDS = 7.5  # a run on digits, plus 1 % per round: most of it is the start of Python
FACTORS = {
    "fedprox": 1.1, "fedproxm": 1.1, "moon": 1.6, "moonm": 1.6, "fedmlb": 1.35, "fedmlbm": 1.35, "scaffold": 1.3,
    "mifa": 1.1, "mifam": 1.1, "feddyn": 1.35, "mimelite": 2.4, "gradma_w": 2.5, "gradma": 2.4,
}  # fmt: skip
"""A round's time relative to FedAvg's, measured on MNIST; the others are within 5 %."""
CORES_PER_GPU = 150  # a guess: 8 TFLOP/s to 55 GFLOP/s


def grid_of(name: str) -> Axes:
    """The grid of one method: both rates, and its own fields that declare one."""
    options = known_keys()
    axes = {key: options[key].metadata["grid"] for key in ("local_lr", "server_lr")}
    fields = walk(base.get(name))
    return axes | {f"algorithm.{name}": grid for name, field in fields if (grid := field.metadata.get("grid"))}


def all_sweeps() -> list[SweepDefinition]:
    """The sweeps of the paper, those of what its numbers are made of and of its claims, then those of the benchmark."""
    grids = {name: grid_of(name) for name in (*METHODS, *COMPARED, *PERSONALISED)}
    return definitions(grids) + follow_up_sweeps(grids) + claims() + benchmark_sweeps(grids)


def seconds(trial: dict[str, Any]) -> float:
    """The time one trial takes on one core."""
    trial = trial | dict(argument.split("=", 1) for argument in trial.get("point", "").split())
    name = trial["algorithm.name"]
    if trial.get("model.name") == "tanh_mlp":
        return FACTORS.get(name, 1.0) * int(trial["num_rounds"]) * (0.003 + 0.00013 * int(trial["cohort_size"]))
    if "scenario" not in trial:
        return DEMO_SECONDS * (1 + int(trial["num_rounds"]) / 100)
    column = COLUMNS[trial["scenario"]]
    rounds = int(trial.get("num_rounds", column.num_rounds))
    per_round = BF16_SECONDS if trial.get("precision") == "bf16-mixed" else ROUND_SECONDS
    return FACTORS.get(name, 1.0) * per_round[column.data] * column.cohort_size / 10 * rounds


def cost(sweep: SweepDefinition) -> str:
    hours = sum(map(seconds, sweep.trials())) / 3600
    time = f"{hours * 60:.0f} core-minutes" if hours < 1.5 else f"{hours:.0f} core-hours"
    gpu = f"; guess: {hours / CORES_PER_GPU:.0f} GPU-hours" if hours > 500 else ""
    return f"{sweep.num_trials} trials, about {time} on CPU cores of one thread each{gpu}"


def header(sweep: SweepDefinition) -> str:
    lines = [
        sweep.feeds,
        f"offline: python -m fl_platform sweep run sweeps/{sweep.name}.yaml --jobs 2",
        f"online:  wandb sweep sweeps/{sweep.name}.yaml, then wandb agent ID",
        f"cost: {cost(sweep)}",
        *textwrap.wrap(sweep.notes, 116),
        f"Written by `make sweeps` from {sweep.source}; change it there.",
    ]
    return "".join(f"# {line}\n" for line in lines)


def text(sweep: SweepDefinition) -> str:
    """The whole file, for ``sweep run`` and for ``wandb sweep``."""
    metric = {"name": sweep.metric, "goal": "maximize"}
    content: dict[str, Any] = {"name": sweep.name, "method": "grid", "metric": metric, "command": COMMAND}
    if sweep.early_terminate:
        content["early_terminate"] = sweep.early_terminate
    content["parameters"] = sweep.parameters
    return header(sweep) + yaml.safe_dump(content, sort_keys=False, width=160)


def write(directory: Path) -> list[Path]:
    """Write every file into a directory; returns their paths."""
    files = {directory / f"{sweep.name}.yaml": text(sweep) for sweep in all_sweeps()}
    for path, content in files.items():
        write_atomically(path, content)
    return list(files)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.sweeps", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("sweeps"), help="where to write them (sweeps)")
    for path in write(parser.parse_args().directory):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
