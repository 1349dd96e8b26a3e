"""The sweeps of a comparison of all methods: an equal-budget search on held-out data, then three seeds."""

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from fl_platform.paper.methods import METHODS
from fl_platform.paper.sweeps import FIXED, SEEDS, Axes, SweepDefinition, budget_points, grid_points, values

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

FEW_RATES = ((0.1, 1.0), (0.1, 0.1), (0.01, 10.0), (0.01, 1.0))
"""(local_lr, server_lr) of the four points that each method has on digits; adaptive ones have a tenth of the second."""

NEEDED = {"dp_fedavg": "model.norm=group", "dp_fedavgm": "model.norm=group"}
"""Arguments without which a method is refused."""

DIGITS: dict[str, Any] = {
    "data.name": "digits",
    "data.dirichlet_omega": 0.1,
    "num_workers": 50,
    "num_rounds": 30,
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
    few = {name: few_points(name, grids[name]) for name in COMPARED}
    drawn = {name: drawn_points(name, grids[name]) for name in COMPARED}
    return [
        search("digits", DIGITS, few, 0.2),
        comparison("digits", DIGITS),
        search("mnist", MNIST, drawn, 0.1),
        comparison("mnist", MNIST),
    ]


def drawn_points(name: str, axes: Axes) -> list[str]:
    """``BUDGET`` points of a method's own grid."""
    if name in ADAPTIVE:
        axes = {**axes, "server_lr": ADAPTIVE_RATES}
    return with_needed(name, budget_points(name, grid_points(name, axes)))


def few_points(name: str, axes: Axes) -> list[str]:
    """The same four pairs of rates for every method, its own fields drawn from their grids without repetition."""
    own = {key: axes[key] for key in axes if key.startswith("algorithm.")}
    fields = [dict(zip(own, chosen, strict=True)) for chosen in itertools.product(*own.values())]
    random.Random(f"benchmark of {name}").shuffle(fields)
    points = []
    for (local, server), chosen in zip(FEW_RATES, itertools.cycle(fields), strict=False):
        rate = FIXED.get(name, {}).get("server_lr", server / 10 if name in ADAPTIVE else server)
        keys = {"local_lr": local, "server_lr": rate, **chosen}
        points.append(" ".join([f"algorithm.name={name}", *(f"{key}={value}" for key, value in keys.items())]))
    return with_needed(name, list(dict.fromkeys(points)))


def with_needed(name: str, points: Sequence[str]) -> list[str]:
    """Points with what the method needs to be accepted."""
    return [f"{point} {NEEDED[name]}" if name in NEEDED else point for point in points]


def search(
    data: str, keys: Mapping[str, Any], points: Mapping[str, Sequence[str]], validation_fraction: float
) -> SweepDefinition:
    chosen = f"sweeps/chosen_benchmark_{data}.yaml"
    return SweepDefinition(
        name=f"tune_benchmark_{data}",
        feeds=f"Hyper-parameters of sweeps/benchmark_{data}.yaml: {len(points['fedavg'])} points of each of "
        f"{len(COMPARED)} methods.",
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
    named = [with_needed(name, [f"algorithm.name={name}"])[0] for name in COMPARED]
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
