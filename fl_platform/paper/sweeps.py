"""The sweeps behind the paper's tables and figures: what each of them ranges over.

A conditional grid (every method has fields of its own) is one parameter, ``point``, that lists its points as
arguments of ``run``: a product over all fields would multiply what does not belong together. The grids themselves are
declared by the methods' classes and passed in; ``make sweeps`` writes the YAML files.
"""

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fl_platform.paper.methods import METHODS
from fl_platform.paper.scenarios import COLUMNS, DATA_LABELS

SEEDS = (0, 1, 2)
BETAS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
MEMORY_SIZES = (0, 10, 20, 40, 60, 80, 100)
POLICIES = ("least_frequent", "least_recent", "fifo", "reservoir", "most_redundant")
BUDGET = 9  # points of every method: the whole grid of the smallest ones
FIXED: dict[str, dict[str, Any]] = {"feddyn": {"server_lr": 1.0}}  # its server rule has no free rate

TOP_ACCURACY = "test/top_accuracy"

Axes = Mapping[str, Sequence[Any]]
"""The grid of one method: configuration key -> the values of the paper's appendix B."""


@dataclass(frozen=True)
class SweepDefinition:
    """One sweep: what it feeds, its parameters in W&B's form, and what a reader must know of it."""

    name: str
    feeds: str
    parameters: dict[str, dict[str, Any]]
    notes: str = ""
    early_terminate: dict[str, Any] | None = None
    source: str = "fl_platform/paper/sweeps.py"
    metric: str = TOP_ACCURACY  # the larger, the better

    @property
    def num_trials(self) -> int:
        return math.prod(len(spec.get("values", [0])) for spec in self.parameters.values())

    def trials(self) -> Iterator[dict[str, Any]]:
        """Every combination of the parameters' values."""
        listed = [spec.get("values") or [spec["value"]] for spec in self.parameters.values()]
        for chosen in itertools.product(*listed):
            yield dict(zip(self.parameters, chosen, strict=True))


def definitions(grids: Mapping[str, Axes]) -> list[SweepDefinition]:
    """Every sweep of the paper; ``grids`` holds the grid of each method by its name."""
    points = {name: grid_points(name, grids[name]) for name in METHODS}
    return [
        *map(table, DATA_LABELS),
        *(tune(data, points) for data in DATA_LABELS),
        *(tune_budget(data, points) for data in DATA_LABELS),
        *ablations(),
        variants(),
        demo(),
        robust(),
    ]


def grid_points(name: str, axes: Axes) -> list[str]:
    """The grid of one method, each point as the arguments that choose it."""
    fixed = {key: (value,) for key, value in FIXED.get(name, {}).items()}
    arguments = [[f"{key}={value}" for value in listed] for key, listed in {**axes, **fixed}.items()]
    return [" ".join([f"algorithm.name={name}", *point]) for point in itertools.product(*arguments)]


def budget_points(name: str, points: Sequence[str]) -> list[str]:
    """As many points for every method, drawn from its grid without repetition, the same at every generation.

    They stay in the order drawn: a grid's own begins with the smallest rates, where each point beats those before it
    and hyperband stops none.
    """
    return random.Random(f"tuning budget of {name}").sample(points, BUDGET)


def columns(data: str) -> list[str]:
    """The names of the paper's scenarios on one data set."""
    return [name for name, column in COLUMNS.items() if column.data == data]


def with_ten(data: str) -> list[str]:
    """The columns of a data set with 10 workers per round."""
    return [name for name in columns(data) if COLUMNS[name].cohort_size == 10]


def values(*listed: Any) -> dict[str, Any]:
    """A parameter in W&B's form."""
    return {"value": listed[0]} if len(listed) == 1 else {"values": list(listed)}


def chosen(data: str) -> dict[str, Any]:
    """The file with the values that a search chose."""
    return values(f"sweeps/chosen_{data}.yaml")


def table(data: str) -> SweepDefinition:
    """The sweep behind the columns of a data set in Tables 1 and 2."""
    return SweepDefinition(
        name=f"table_{data}",
        feeds=f"Tables 1 and 2, {DATA_LABELS[data]}: {len(METHODS)} algorithms, {len(columns(data))} scenarios, "
        f"{len(SEEDS)} seeds.",
        parameters={
            "algorithm.name": values(*METHODS),
            "scenario": values(*columns(data)),
            "seed": values(*SEEDS),
            "chosen": chosen(data),
        },
        notes=f"Hyper-parameters come from sweeps/chosen_{data}.yaml (`sweep best` on a tune sweep writes it), "
        "else from the defaults.",
    )


def tune(data: str, points: Mapping[str, Sequence[str]]) -> SweepDefinition:
    """The search over the full grids of appendix B."""
    return SweepDefinition(
        name=f"tune_{data}",
        feeds=f"Hyper-parameters of the tables, {DATA_LABELS[data]}: the full grids of appendix B, seed 0, m = 100.",
        parameters={
            "point": values(*itertools.chain(*points.values())),
            "scenario": values(*columns(data)),
            "seed": values(0),
        },
        notes="Grids differ in size (9 to 81 points), which favours the larger ones; the _budget sweep gives each "
        f"algorithm the same. Then: sweep best sweeps/tune_{data}.yaml --write sweeps/chosen_{data}.yaml",
    )


def tuned_columns(data: str) -> dict[str, list[str]]:
    """Tuned scenario -> others that take its choice: MNIST's S = 5 and 50 that of S = 10, elsewhere each its own."""
    tuned: dict[str, list[str]] = {name: [] for name in (with_ten(data) if data == "mnist" else columns(data))}
    for name in columns(data):
        if name not in tuned:
            tuned[f"{name.rpartition('_')[0]}_s10"].append(name)
    return tuned


def tune_budget(data: str, points: Mapping[str, Sequence[str]]) -> SweepDefinition:
    """The search with the same number of points for every algorithm."""
    evaluations = min(COLUMNS[name].num_rounds // COLUMNS[name].evaluation_every for name in columns(data))
    tuned = tuned_columns(data)
    reuse = "".join(f" --reuse {name}={source}" for source, names in tuned.items() for name in names)
    return SweepDefinition(
        name=f"tune_{data}_budget",
        feeds=f"Hyper-parameters of the tables, {DATA_LABELS[data]}: {BUDGET} points of each algorithm's grid, seed 0.",
        parameters={
            "scenario": values(*tuned),
            "point": values(*itertools.chain(*(budget_points(name, points[name]) for name in METHODS))),
            "seed": values(0),
        },
        notes="An upper bound: hyperband stops the worse points of an algorithm in a scenario. A W&B server compares "
        "all trials of the sweep with each other instead and would stop whole methods: run this one with `sweep run`. "
        f"Then: sweep best sweeps/tune_{data}_budget.yaml --write sweeps/chosen_{data}.yaml{reuse}",
        early_terminate={"type": "hyperband", "max_iter": evaluations, "s": 2, "eta": 3},
    )


def ablation(name: str, data: str, feeds: str, parameters: dict[str, dict[str, Any]]) -> SweepDefinition:
    """GradMA-S over some of its own keys, in the scenarios with S = 10."""
    return SweepDefinition(
        name=name,
        feeds=feeds,
        parameters={
            "algorithm.name": values("gradma_s"),
            **parameters,
            "scenario": values(*with_ten(data)),
            "seed": values(*SEEDS),
            "chosen": chosen(data),
        },
        notes=f"The rates are those of sweeps/chosen_{data}.yaml where it exists, else the defaults.",
    )


def ablations() -> Iterator[SweepDefinition]:
    """The sweeps over decays, memory sizes and eviction policies."""
    for data in ("mnist", "cifar10"):
        betas = {
            "algorithm.momentum_decay": values(*BETAS),
            "algorithm.memory_decay": values(*BETAS),
            "algorithm.memory_size": values(100),
        }
        feeds = f"Figure: top accuracy of GradMA-S over (beta_1, beta_2), {DATA_LABELS[data]}, S = 10, m = 100."
        yield ablation(f"fig_betas_{data}", data, feeds, betas)
        sizes = {"algorithm.memory_size": values(*MEMORY_SIZES)}
        feeds = (
            f"Figure: top accuracy of GradMA-S over the memory size m, {DATA_LABELS[data]}, S = 10; m = 0 is FedAvgM."
        )
        yield ablation(f"fig_memory_{data}", data, feeds, sizes)
    policies = {"algorithm.memory_policy": values(*POLICIES), "algorithm.memory_size": values(20)}
    feeds = "Figure: GradMA-S with m = 20 under five rules for which slot is overwritten, MNIST, S = 10."
    yield ablation("fig_policies_mnist", "mnist", feeds, policies)


def variants() -> SweepDefinition:
    """Both presets at two local rates and two momentum decays, then each of their differences alone."""
    differences = {
        "weights": "aggregation=samples",
        "scope": "algorithm.qp.scope=tensor",
        "previous": "algorithm.previous_model=global",
        "threshold": "algorithm.qp.drop_threshold=0.001",
    }
    applies = {
        "fedavg": ("weights",),
        "fedavgm": ("weights",),
        "gradma_w": ("weights", "scope"),
        "gradma_s": ("weights", "scope", "threshold"),
        "gradma": ("weights", "scope", "previous", "threshold"),
    }
    rates = ("local_lr=0.01", "local_lr=0.1")
    slow = [f"algorithm.momentum_decay={beta}" for beta in (0.5, 0.9)]
    memory = [f"{arguments} algorithm.memory_decay=0.5" for arguments in slow]
    decays = {"fedavg": [""], "fedavgm": slow, "gradma_w": [""], "gradma_s": memory, "gradma": memory}
    released = {name: [differences[d] for d in named if d != "threshold"] for name, named in applies.items()}
    points = [
        [name, rate, decay, *arguments]
        for name in applies
        for rate, decay in itertools.product(rates, decays[name])
        for arguments in ([], released[name])
    ]
    for name, named in applies.items():
        alone = [[differences[d]] for d in named] if len(named) > 1 else []
        alone += [[*released[name], differences["threshold"]]] if "threshold" in named else []
        points += [[name, rate, decays[name][0], *arguments] for rate in rates for arguments in alone]
    named_points = [" ".join(filter(None, [f"algorithm.name={name}", *arguments])) for name, *arguments in points]
    return SweepDefinition(
        name="variants_mnist",
        feeds="Which reading of the paper gives its numbers? MNIST, omega = 0.01, S = 10, seed 0.",
        parameters={"point": values(*named_points), "scenario": values("mnist_w0.01_s10"), "seed": values(0)},
        notes="Weights 1/S or by samples, one QP or one per tensor, x_{-1} = the last local model or x_t, and the "
        "threshold below which server anchors are dropped: all as in preset paper, all as in preset released, each "
        "alone.",
    )


def demo() -> SweepDefinition:
    """The sweep of ``fl-platform demo``."""
    return SweepDefinition(
        name="demo_digits",
        feeds=f"A look at everything: {len(METHODS)} algorithms, 2 seeds, 20 rounds on the built-in digits; "
        "no download.",
        parameters={
            "algorithm.name": values(*METHODS),
            "seed": values(0, 1),
            "data.name": values("digits"),
            "data.dirichlet_omega": values(0.1),
            "num_rounds": values(20),
        },
        notes="Most of it is Python's start, once per trial; --in-process beside --jobs 2 saves that and takes 90 "
        "core-seconds.",
    )


def robust() -> SweepDefinition:
    """Six robust rules beside FedAvg over the share of faulty workers."""
    return SweepDefinition(
        name="robust_digits",
        feeds="Accuracy over the share of faulty workers: FedAvg and six robust rules, three kinds of faults, digits.",
        parameters={
            "algorithm.name": values("fedavg", "median", "trimmed_mean", "krum", "multi_krum", "rfa", "norm_clipping"),
            "faults.kind": values("sign_flip", "alie", "label_flip"),
            "faults.probability": values(0.0, 0.1, 0.2, 0.3, 0.4),
            "faults.workers": values("fixed"),
            "data.name": values("digits"),
            "data.dirichlet_omega": values(10.0, 0.1),
            "num_rounds": values(30),
            "seed": values(*SEEDS),
        },
        notes="Rates are the defaults, and so is what each rule takes to be faulty (20 %).",
    )
