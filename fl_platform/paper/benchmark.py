"""The sweeps of a comparison of all methods: an equal-budget search on held-out data, then three seeds."""

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from fl_platform.paper.methods import METHODS
from fl_platform.paper.sweeps import FIXED, SEEDS, TOP_ACCURACY, Axes, SweepDefinition, values

SOURCE = "fl_platform/paper/benchmark.py"

COMPARED: tuple[str, ...] = (
    *METHODS,
    *("fedadam", "fedyogi", "fedadagrad", "fedexp", "fedmom"),
    *("fednova", "fedcm", "domo", "mime", "fedsam", "mofedsam", "fedspeed", "fedlc", "fedrs", "fedntd", "feddecorr"),
    *("median", "trimmed_mean", "krum", "multi_krum", "rfa", "norm_clipping"),
    *("dp_fedavg", "dp_fedavgm", "dp_ftrl", "dp_ftrlm"),
)
"""The methods that are judged by the server's model, by group, the paper's first."""

PERSONALISED: tuple[str, ...] = ("fedavg", "fedper", "fedrep", "fedbn", "fedbabu", "ditto", "apfl")
"""The methods that are judged by each worker's own model, and FedAvg beside them."""

ADAPTIVE = ("fedadam", "fedyogi", "fedadagrad")
"""Methods that divide the update by its size: their server rates are a tenth of the others'."""

RATES = {
    "digits": ((0.1, 1.0), (0.1, 0.1), (0.01, 10.0), (0.01, 1.0)),
    "mnist": tuple(itertools.product((0.1, 0.01), (1.0, 0.1, 10.0))),
}
"""(local_lr, server_lr) of the points that each method has. On MNIST they are the paper's grid without its smallest
local rate, at which 100 rounds are too few."""

SEARCH_SEED = 3
"""Not one of the seeds that are compared: nothing that a choice has seen is scored again."""

VALIDATION = {"digits": 0.2, "mnist": 0.1}
"""The share of the training data that a search holds out and scores."""

NEEDED = {
    **dict.fromkeys(("dp_fedavg", "dp_fedavgm"), "model.norm=group"),
    **dict.fromkeys(("dp_ftrl", "dp_ftrlm"), "model.norm=group cohort_sampling=epochs"),
}
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
    """The searches and the comparisons; ``grids`` holds the grid of each method by its name."""
    return [
        *compare("benchmark_digits", DIGITS, COMPARED, grids, TOP_ACCURACY),
        *compare("benchmark_mnist", MNIST, COMPARED, grids, TOP_ACCURACY),
        *compare("personal_mnist", {**MNIST, "evaluation.finetune_steps": 5}, PERSONALISED, grids, "workers/accuracy"),
    ]


def compare(
    name: str, keys: Mapping[str, Any], methods: Sequence[str], grids: Mapping[str, Axes], metric: str
) -> list[SweepDefinition]:
    """An equal-budget search on held-out data for the largest ``metric``, and the comparison that uses its choice."""
    data = name.rpartition("_")[2]
    points = {method: drawn_points(method, grids[method], RATES[data]) for method in methods}
    held_out = {**keys, "num_rounds": keys["num_rounds"] // 2, "data.validation_fraction": VALIDATION[data]}
    return [search(name, held_out, points, metric), comparison(name, keys, methods, metric)]


def drawn_points(method: str, axes: Axes, rates: Sequence[tuple[float, float]]) -> list[str]:
    """The same pairs of rates for every method, its own fields drawn from their grids without repetition."""
    own = {key: axes[key] for key in axes if key.startswith("algorithm.")}
    fields = [dict(zip(own, chosen, strict=True)) for chosen in itertools.product(*own.values())]
    random.Random(f"benchmark of {method}").shuffle(fields)
    points = []
    for (local, server), chosen in zip(rates, itertools.cycle(fields), strict=False):
        rate = FIXED.get(method, {}).get("server_lr", server / 10 if method in ADAPTIVE else server)
        points.append(with_needed(method, {"local_lr": local, "server_lr": rate, **chosen}))
    return list(dict.fromkeys(points))


def with_needed(method: str, keys: Mapping[str, Any]) -> str:
    """The arguments that choose a method and its values, with what it needs to be accepted."""
    listed = [f"{key}={value}" for key, value in {"algorithm.name": method, **keys}.items()]
    return " ".join([*listed, *([NEEDED[method]] if method in NEEDED else [])])


def search(name: str, keys: Mapping[str, Any], points: Mapping[str, Sequence[str]], metric: str) -> SweepDefinition:
    """The sweep over points of every method, on held-out data, that comes before a comparison."""
    by = "" if metric == TOP_ACCURACY else f" --by {metric}"
    size = f"{len(points['fedavg'])} points of each of {len(points)} methods"
    return SweepDefinition(
        name=f"tune_{name}",
        feeds=f"Hyper-parameters of sweeps/{name}.yaml: {size}.",
        parameters={
            "point": values(*itertools.chain(*points.values())),
            **{key: {"value": value} for key, value in keys.items()},
            "seed": values(SEARCH_SEED),
        },
        notes="Accuracies are those of held-out training data after half of the comparison's rounds. "
        f"Then: sweep best sweeps/tune_{name}.yaml --select-on validation{by} --write sweeps/chosen_{name}.yaml",
        source=SOURCE,
        metric=metric,
    )


def comparison(name: str, keys: Mapping[str, Any], methods: Sequence[str], metric: str) -> SweepDefinition:
    """The sweep over methods and seeds, with the values that the search chose."""
    return SweepDefinition(
        name=name,
        feeds=f"All methods on equal terms: {len(methods)} methods, {len(SEEDS)} seeds, {keys['num_rounds']} rounds.",
        parameters={
            "point": values(*(with_needed(method, {}) for method in methods)),
            **{key: {"value": value} for key, value in keys.items()},
            "seed": values(*SEEDS),
            "chosen": values(f"sweeps/chosen_{name}.yaml"),
        },
        notes=f"Hyper-parameters come from sweeps/chosen_{name}.yaml, which the search "
        f"sweeps/tune_{name}.yaml gives, else from the defaults.",
        source=SOURCE,
        metric=metric,
    )
