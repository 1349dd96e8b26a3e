"""The sweeps of the paper's tables and figures, written from the algorithms' own grids.

A conditional grid (every algorithm has fields of its own) is one parameter, ``point``, that lists its points as words:
a product over all fields would multiply what does not belong together.
"""

import itertools
import random
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fl_platform.algorithms import base
from fl_platform.config.options import walk
from fl_platform.config.schema import known_keys
from fl_platform.paper.scenarios import scenarios
from fl_platform.runs import metrics
from fl_platform.runs.writing import write_atomically

ALGORITHMS = (
    "fedavg", "fedprox", "moon", "fedmlb", "scaffold", "gradma_w",
    "fedavgm", "mifa", "mifam", "gradma_s",
    "fedproxm", "moonm", "fedmlbm", "feddyn", "mimelite", "gradma",
)  # fmt: skip
"""The rows of the paper's tables, in their order; methods registered by others do not enter its sweeps."""
DATASETS = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny_imagenet": "Tiny-ImageNet"}
SEEDS = [0, 1, 2]
BETAS = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9]
MEMORY_SIZES = [0, 10, 20, 40, 60, 80, 100]
BUDGET = 9  # points of every algorithm: the whole grid of the smallest ones
FIXED = {"feddyn": {"server_lr": 1.0}}  # its server rule has no free rate

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
"""``wandb agent`` runs it as it is; ``sweep run`` adds tracking.mode=offline and its own words, which win."""
METRIC = {"name": metrics.TOP_ACCURACY, "goal": "maximize"}

ROUND_SECONDS = {"mnist": 0.16, "cifar10": 9.5, "cifar100": 110.0, "tiny_imagenet": 1100.0}
"""CPU seconds of a FedAvg round with S = 10 on one core, evaluation included; how measured is in docs/sweeps.md."""
FACTORS = {
    "fedprox": 1.1, "fedproxm": 1.1, "moon": 1.6, "moonm": 1.6, "fedmlb": 1.35, "fedmlbm": 1.35, "scaffold": 1.3,
    "mifa": 1.1, "mifam": 1.1, "feddyn": 1.35, "mimelite": 2.4, "gradma_w": 2.5, "gradma": 2.4,
}  # fmt: skip
"""A round's time relative to FedAvg's, measured on MNIST; the others are within 5 %."""
CORES_PER_GPU = 150  # a guess: 8 TFLOP/s to 55 GFLOP/s


@dataclass(frozen=True)
class Plan:
    """One YAML: what it feeds, its parameters, and how long all of it takes."""

    name: str
    feeds: str
    parameters: dict[str, dict[str, Any]]
    core_hours: float
    notes: str = ""
    early_terminate: dict[str, Any] | None = None

    def text(self) -> str:
        content: dict[str, Any] = {"name": self.name, "method": "grid", "metric": METRIC, "command": COMMAND}
        if self.early_terminate:
            content["early_terminate"] = self.early_terminate
        content["parameters"] = self.parameters
        return self.header() + yaml.safe_dump(content, sort_keys=False, width=160)

    def header(self) -> str:
        trials = 1
        for spec in self.parameters.values():
            trials *= len(spec.get("values", [0]))
        lines = [
            f"{self.feeds}",
            f"offline: python -m fl_platform sweep run sweeps/{self.name}.yaml --jobs 2",
            f"online:  wandb sweep sweeps/{self.name}.yaml, then wandb agent ID",
            f"cost: {trials} trials, about {hours(self.core_hours)} on CPU cores of one thread each{gpu_hours(self)}",
            *textwrap.wrap(self.notes, 116),
            "Written by `python -m fl_platform sweep generate`; change it there.",
        ]
        return "".join(f"# {line}\n" for line in lines)


def hours(value: float) -> str:
    return f"{value * 60:.0f} core-minutes" if value < 1.5 else f"{value:.0f} core-hours"


def gpu_hours(plan: Plan) -> str:
    """A rough figure for what no one would run on a CPU; not measured, see docs/sweeps.md."""
    return f"; guess: {plan.core_hours / CORES_PER_GPU:.0f} GPU-hours" if plan.core_hours > 500 else ""


def columns(dataset: str) -> list[str]:
    return [name for name in scenarios() if name.startswith(f"{dataset}_w")]


def cost(algorithm: str, scenario: str) -> float:
    """Core-hours of one run."""
    values = scenarios()[scenario]
    seconds = ROUND_SECONDS[values["data"]["name"]] * values["cohort_size"] / 10 * values["num_rounds"]
    return FACTORS.get(algorithm, 1.0) * float(seconds) / 3600


def values(*listed: Any) -> dict[str, Any]:
    return {"value": listed[0]} if len(listed) == 1 else {"values": list(listed)}


def grid_points(algorithm: str) -> list[str]:
    """Appendix B's grid of one algorithm: both rates and the fields that declare a grid; the rest has its default."""
    options = known_keys()
    axes: dict[str, tuple[Any, ...]] = {key: options[key].metadata["grid"] for key in ("local_lr", "server_lr")}
    for name, field in walk(base.get(algorithm)):
        if field.metadata.get("grid"):
            axes[f"algorithm.{name}"] = field.metadata["grid"]
    axes |= {key: (value,) for key, value in FIXED.get(algorithm, {}).items()}
    words = [[f"{key}={value}" for value in listed] for key, listed in axes.items()]
    return [" ".join([f"algorithm.name={algorithm}", *point]) for point in itertools.product(*words)]


def budget_points(algorithm: str) -> list[str]:
    """As many points for every algorithm, drawn from its grid without repetition, the same at every generation.

    They stay in the order drawn: a grid's own begins with the smallest rates, where each point beats those before it
    and hyperband stops none.
    """
    return random.Random(f"tuning budget of {algorithm}").sample(grid_points(algorithm), BUDGET)


def table(dataset: str) -> Plan:
    return Plan(
        name=f"table_{dataset}",
        feeds=f"Tables 1 and 2, {DATASETS[dataset]}: 16 algorithms, {len(columns(dataset))} scenarios, 3 seeds.",
        parameters={
            "algorithm.name": values(*ALGORITHMS),
            "scenario": values(*columns(dataset)),
            "seed": values(*SEEDS),
            "chosen": values(f"sweeps/chosen_{dataset}.yaml"),
        },
        core_hours=sum(cost(algorithm, scenario) for algorithm in ALGORITHMS for scenario in columns(dataset))
        * len(SEEDS),
        notes=f"Hyper-parameters come from sweeps/chosen_{dataset}.yaml (`sweep best` on a tune sweep writes it), "
        "else from the defaults.",
    )


def tune(dataset: str) -> Plan:
    points = {algorithm: grid_points(algorithm) for algorithm in ALGORITHMS}
    return Plan(
        name=f"tune_{dataset}",
        feeds=f"Hyper-parameters of the tables, {DATASETS[dataset]}: the full grids of appendix B, seed 0, m = 100.",
        parameters={
            "point": values(*itertools.chain(*points.values())),
            "scenario": values(*columns(dataset)),
            "seed": values(0),
        },
        core_hours=sum(len(points[a]) * cost(a, scenario) for a in ALGORITHMS for scenario in columns(dataset)),
        notes="Grids differ in size (9 to 81 points), which favours the larger ones; the _budget sweep gives each "
        "algorithm the same. "
        f"Then: sweep best sweeps/tune_{dataset}.yaml --write sweeps/chosen_{dataset}.yaml",
    )


def tuned_columns(dataset: str) -> dict[str, list[str]]:
    """Tuned scenario -> others that take its choice: MNIST's S = 5 and 50 that of S = 10, elsewhere each its own."""
    found: dict[str, list[str]] = {name: [] for name in columns(dataset) if dataset != "mnist" or name.endswith("_s10")}
    for name in columns(dataset):
        if name not in found:
            found[f"{name.rpartition('_')[0]}_s10"].append(name)
    return found


def tune_budget(dataset: str) -> Plan:
    rounds = {scenarios()[name]["num_rounds"] // scenarios()[name]["evaluation"]["every"] for name in columns(dataset)}
    tuned = tuned_columns(dataset)
    reuse = "".join(f" --reuse {name}={source}" for source, names in tuned.items() for name in names)
    return Plan(
        name=f"tune_{dataset}_budget",
        feeds=f"Hyper-parameters of the tables, {DATASETS[dataset]}: {BUDGET} points of each algorithm's grid, seed 0.",
        parameters={
            "scenario": values(*tuned),
            "point": values(*itertools.chain(*(budget_points(algorithm) for algorithm in ALGORITHMS))),
            "seed": values(0),
        },
        core_hours=sum(BUDGET * cost(a, scenario) for a in ALGORITHMS for scenario in tuned),
        notes="An upper bound: hyperband stops the worse points of an algorithm in a scenario. A W&B server compares "
        "all trials of the sweep with each other instead and would stop whole methods: run this one with `sweep run`. "
        f"Then: sweep best sweeps/tune_{dataset}_budget.yaml --write sweeps/chosen_{dataset}.yaml{reuse}",
        early_terminate={"type": "hyperband", "max_iter": min(rounds), "s": 2, "eta": 3},
    )


def ablation(
    name: str, dataset: str, feeds: str, parameters: dict[str, dict[str, Any]], scenario_names: list[str]
) -> Plan:
    count = 1
    for spec in parameters.values():
        count *= len(spec.get("values", [0]))
    return Plan(
        name=name,
        feeds=feeds,
        parameters={
            "algorithm.name": values("gradma_s"),
            **parameters,
            "scenario": values(*scenario_names),
            "seed": values(*SEEDS),
            "chosen": values(f"sweeps/chosen_{dataset}.yaml"),
        },
        core_hours=count * len(SEEDS) * sum(cost("gradma_s", scenario) for scenario in scenario_names),
        notes=f"The rates are those of sweeps/chosen_{dataset}.yaml where it exists, else the defaults.",
    )


def ablations() -> Iterator[Plan]:
    for dataset in ("mnist", "cifar10"):
        with_ten = [name for name in columns(dataset) if name.endswith("_s10")]
        betas = {
            "algorithm.momentum_decay": values(*BETAS),
            "algorithm.memory_decay": values(*BETAS),
            "algorithm.memory_size": values(100),
        }
        feeds = f"Figure: top accuracy of GradMA-S over (beta_1, beta_2), {DATASETS[dataset]}, S = 10, m = 100."
        yield ablation(f"fig_betas_{dataset}", dataset, feeds, betas, with_ten)
        feeds = (
            f"Figure: top accuracy of GradMA-S over the memory size m, {DATASETS[dataset]}, S = 10; m = 0 is FedAvgM."
        )
        yield ablation(
            f"fig_memory_{dataset}", dataset, feeds, {"algorithm.memory_size": values(*MEMORY_SIZES)}, with_ten
        )
    policies = {
        "algorithm.memory_policy": values("least_frequent", "least_recent", "fifo", "reservoir", "most_redundant"),
        "algorithm.memory_size": values(20),
    }
    feeds = "Figure: GradMA-S with m = 20 under five rules for which slot makes room, MNIST, S = 10."
    yield ablation(
        "fig_policies_mnist", "mnist", feeds, policies, [name for name in columns("mnist") if name.endswith("_s10")]
    )


def variants() -> Plan:
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
    memory = [f"{words} algorithm.memory_decay=0.5" for words in slow]
    decays = {"fedavg": [""], "fedavgm": slow, "gradma_w": [""], "gradma_s": memory, "gradma": memory}
    released = {name: [differences[d] for d in named if d != "threshold"] for name, named in applies.items()}
    points = [
        [name, rate, decay, *words]
        for name in applies
        for rate, decay in itertools.product(rates, decays[name])
        for words in ([], released[name])
    ]
    for name, named in applies.items():
        alone = [[differences[d]] for d in named] if len(named) > 1 else []
        alone += [[*released[name], differences["threshold"]]] if "threshold" in named else []
        points += [[name, rate, decays[name][0], *words] for rate in rates for words in alone]
    named_points = [" ".join(filter(None, [f"algorithm.name={name}", *words])) for name, *words in points]
    scenario = "mnist_w0.01_s10"
    return Plan(
        name="variants_mnist",
        feeds="Which reading of the paper gives its figures? MNIST, omega = 0.01, S = 10, seed 0.",
        parameters={"point": values(*named_points), "scenario": values(scenario), "seed": values(0)},
        core_hours=sum(cost(name, scenario) for name, *_ in points),
        notes="Weights 1/S or by samples, one QP or one per tensor, x_{-1} = the last local model or x_t, and the "
        "threshold below which server anchors are dropped: all as in preset paper, all as in preset released, each "
        "alone.",
    )


def demo() -> Plan:
    return Plan(
        name="demo_digits",
        feeds="A look at everything: 16 algorithms, 2 seeds, 20 rounds on the built-in digits; no download.",
        parameters={
            "algorithm.name": values(*ALGORITHMS),
            "seed": values(0, 1),
            "data.name": values("digits"),
            "data.dirichlet_omega": values(0.1),
            "num_rounds": values(20),
        },
        core_hours=0.08,
        notes="Most of it is Python's start, once a trial; --in-process beside --jobs 2 saves that and takes 90 "
        "core-seconds.",
    )


def plans() -> list[Plan]:
    tuned = [make(dataset) for make in (table, tune, tune_budget) for dataset in DATASETS]
    return [*tuned, *ablations(), variants(), demo()]


def generate(directory: Path) -> list[Path]:
    """Write every YAML; returns the files."""
    files = []
    for plan in plans():
        files.append(directory / f"{plan.name}.yaml")
        write_atomically(files[-1], plan.text())
    return files
