"""The sweeps of a comparison of all methods: an equal-budget search on held-out data, then three seeds of the choice."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from fl_platform.paper.methods import METHODS
from fl_platform.paper.sweeps import BUDGET, SEEDS, Axes, SweepDefinition, budget_points, grid_points, values

SOURCE = "fl_platform/paper/benchmark.py"

COMPARED: tuple[str, ...] = (
    *METHODS,
    *("fedadam", "fedyogi", "fedadagrad", "fedexp", "fedmom"),
    *("fednova", "fedcm", "fedsam", "mofedsam", "fedspeed", "fedlc", "fedrs", "fedntd", "feddecorr"),
    *("median", "trimmed_mean", "krum", "multi_krum", "rfa", "norm_clipping"),
    *("dp_fedavg", "dp_fedavgm"),
)
"""The methods of the benchmark by group, the paper's first."""

ADAPTIVE = ("fedadam", "fedyogi", "fedadagrad")
ADAPTIVE_RATES = (0.01, 0.1, 1.0)
"""Server rates of methods that divide the update by its size; the paper's grid lies a power of ten higher."""

NEEDED = {"dp_fedavg": "model.norm=group", "dp_fedavgm": "model.norm=group"}
"""Arguments without which a method is refused."""

DIGITS: dict[str, Any] = {
    "data.name": "digits",
    "data.dirichlet_omega": 0.1,
    "num_workers": 50,
    "num_rounds": 50,
    "evaluation.targets": [0.8, 0.9],
    "evaluation.workers": True,
    "data.worker_test_fraction": 0.2,
}
MNIST: dict[str, Any] = {
    "scenario": "mnist_w0.1_s10",
    "num_rounds": 100,
    "evaluation.targets": [0.8, 0.9],
    "evaluation.workers": True,
    "evaluation.workers_every": 10,
    "data.worker_test_fraction": 0.1,
}


def benchmark_sweeps(grids: Mapping[str, Axes]) -> list[SweepDefinition]:
    """The search and the comparison on both data sets; ``grids`` holds the grid of each method by its name."""
    points = {name: points_of(name, grids[name]) for name in COMPARED}
    return [
        search("digits", DIGITS, points, 0.2),
        comparison("digits", DIGITS),
        search("mnist", MNIST, points, 0.1),
        comparison("mnist", MNIST),
    ]


def points_of(name: str, axes: Axes) -> list[str]:
    """The points of a method in the search: all of its grid, or as many of them as every method has."""
    if name in ADAPTIVE:
        axes = {**axes, "server_lr": ADAPTIVE_RATES}
    points = grid_points(name, axes)
    drawn = budget_points(name, points) if len(points) > BUDGET else points
    return [f"{point} {NEEDED[name]}" if name in NEEDED else point for point in drawn]


def search(
    data: str, keys: Mapping[str, Any], points: Mapping[str, Sequence[str]], validation_fraction: float
) -> SweepDefinition:
    chosen = f"sweeps/chosen_benchmark_{data}.yaml"
    return SweepDefinition(
        name=f"tune_benchmark_{data}",
        feeds=f"Hyper-parameters of sweeps/benchmark_{data}.yaml: {BUDGET} points of each of {len(COMPARED)} methods.",
        parameters={
            "point": values(*itertools.chain(*points.values())),
            **{key: {"value": value} for key, value in keys.items()},
            "data.validation_fraction": values(validation_fraction),
            "seed": values(0),
        },
        notes="Accuracies are those of held-out training data, and every point is run to its end. "
        f"Then: sweep best sweeps/tune_benchmark_{data}.yaml --select-on validation --write {chosen}",
        source=SOURCE,
    )


def comparison(data: str, keys: Mapping[str, Any]) -> SweepDefinition:
    named = [f"algorithm.name={name}" + (f" {NEEDED[name]}" if name in NEEDED else "") for name in COMPARED]
    return SweepDefinition(
        name=f"benchmark_{data}",
        feeds=f"All methods on equal terms: {len(COMPARED)} methods, {len(SEEDS)} seeds, {keys['num_rounds']} rounds.",
        parameters={
            "point": values(*named),
            **{key: {"value": value} for key, value in keys.items()},
            "seed": values(*SEEDS),
            "chosen": values(f"sweeps/chosen_benchmark_{data}.yaml"),
        },
        notes=f"Hyper-parameters come from sweeps/chosen_benchmark_{data}.yaml, which the search "
        f"sweeps/tune_benchmark_{data}.yaml gives, else from the defaults.",
        source=SOURCE,
    )
