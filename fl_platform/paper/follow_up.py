"""The sweeps that ask what the paper's numbers are made of: rates, rules of choice, normalisation, and CIFAR-10."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from fl_platform.paper.methods import METHODS
from fl_platform.paper.sweeps import SEEDS, Axes, SweepDefinition, values, with_ten

SOURCE = "fl_platform/paper/follow_up.py"

SIX = ("fedavg", "gradma_w", "fedavgm", "mifa", "gradma_s", "gradma")
"""The methods in which the paper's argument lies, in its order."""

NORMALISED = ("fedavg", "fedavgm", "gradma_s", "gradma")
"""The methods that are compared under each normalisation."""

LOCAL_RATES, SERVER_RATES = (0.001, 0.01, 0.1), (0.1, 1.0, 10.0)
DECAY = 0.5  # of every momentum and memory
SEARCH_SEED = 0
COMPARED_SEEDS = (1, 2, 3, 4, 5)
"""Without the seed of the search: nothing that a choice has seen is scored again."""
HELD_OUT = 0.1  # share of the training data by which settings are chosen
ROUNDS_CIFAR10, SEARCH_ROUNDS_CIFAR10 = 300, 100  # of the paper's 1,000


def follow_up_sweeps(grids: Mapping[str, Axes]) -> list[SweepDefinition]:
    """Every sweep of this module; ``grids`` holds the grid of each method by its name."""
    return [
        rates(grids),
        rates_validation(grids),
        check(
            grids,
            "released",
            "check_mnist",
            1.0,
            "local_lr = 0.1, server_lr = 1 under preset released is, over three seeds, the one setting for all methods "
            "of rates_mnist that comes nearest to both of the paper's tables.",
        ),
        check(
            grids,
            "paper",
            "check_first_mnist",
            0.1,
            "local_lr = server_lr = 0.1 under preset paper was the nearest by seed 0 alone.",
        ),
        check_pairs(grids),
        settled(),
        norms(grids),
        choose_cifar10(grids),
        precision_cifar10(grids),
        columns_cifar10(),
        seeds_cifar10(),
    ]


def point(method: str, axes: Axes, **rates: float) -> str:
    """The arguments that choose a method at some rates, with all the decays it has at 0.5."""
    decays = [f"{key}={DECAY}" for key in axes if key.endswith("_decay")]
    return " ".join([f"algorithm.name={method}", *(f"{key}={rate}" for key, rate in rates.items()), *decays])


def rate_points(grids: Mapping[str, Axes]) -> list[str]:
    """The six methods on the grid of appendix B for both rates."""
    pairs = list(itertools.product(LOCAL_RATES, SERVER_RATES))
    return [point(name, grids[name], local_lr=local, server_lr=server) for name in SIX for local, server in pairs]


def points_at(methods: Sequence[str], grids: Mapping[str, Axes], **rates: float) -> list[str]:
    """One point for each method, all with the same rates."""
    return [point(name, grids[name], **rates) for name in methods]


def rates(grids: Mapping[str, Axes]) -> SweepDefinition:
    """Six methods on the whole grid of both rates, under both presets, all decays 0.5."""
    return SweepDefinition(
        name="rates_mnist",
        feeds="Which rates, and which rule for choosing them, give the paper's column? MNIST, omega = 0.01, S = 10.",
        parameters={
            "point": values(*rate_points(grids)),
            "preset": values("paper", "released"),
            "scenario": values("mnist_w0.01_s10"),
            "seed": values(*SEEDS),
        },
        notes="The grid of appendix B for both rates, with beta_1 = beta_2 = 0.5, for the six methods in which the "
        "paper's argument lies; every point under both presets.",
        source=SOURCE,
    )


def rates_validation(grids: Mapping[str, Axes]) -> SweepDefinition:
    """The same grid, evaluated on held-out training data."""
    return SweepDefinition(
        name="rates_validation_mnist",
        feeds="The rule of choice 'best on a validation split' beside those of rates_mnist, and the search before "
        "settled_mnist.",
        parameters={
            "point": values(*rate_points(grids)),
            "preset": values("paper", "released"),
            "scenario": values("mnist_w0.01_s10"),
            "data.validation_fraction": values(HELD_OUT),
            "seed": values(SEARCH_SEED),
        },
        notes="The points of rates_mnist, evaluated every round on a tenth of the training data that no worker has. "
        "The choice for settled_mnist is that of preset paper: launch it with preset=[paper] (and preset=[released] "
        "for the other half), then: sweep best rates_validation_mnist preset=[paper] --select-on validation "
        "--by test/accuracy --last 50 --reuse mnist_w0.1_s10=mnist_w0.01_s10 --reuse mnist_w1_s10=mnist_w0.01_s10 "
        "--write sweeps/chosen_settled_mnist.yaml",
        source=SOURCE,
    )


def check(grids: Mapping[str, Axes], preset: str, name: str, server_lr: float, why: str) -> SweepDefinition:
    """A pair of rates that comes near to the column omega = 0.01, S = 10, in two other columns."""
    return SweepDefinition(
        name=name,
        feeds="Does the pair of rates that explains omega = 0.01, S = 10 explain S = 5 and omega = 0.1, too? "
        "MNIST, 3 seeds.",
        parameters={
            "point": values(*points_at(SIX, grids, local_lr=0.1, server_lr=server_lr)),
            "preset": values(preset),
            "scenario": values("mnist_w0.01_s5", "mnist_w0.1_s10"),
            "seed": values(*SEEDS),
        },
        notes=why,
        source=SOURCE,
    )


def check_pairs(grids: Mapping[str, Axes]) -> SweepDefinition:
    """The two pairs of rates that together give the column omega = 0.01, S = 10, in two other columns."""
    slow, fast = ("fedavg", "fedavgm"), ("gradma_w", "mifa", "gradma_s", "gradma")
    return SweepDefinition(
        name="check_pairs_mnist",
        feeds="Do the two pairs of rates that give omega = 0.01, S = 10 give S = 5 and omega = 0.1, too? "
        "MNIST, 3 seeds.",
        parameters={
            "point": values(
                *points_at(slow, grids, local_lr=0.001, server_lr=1.0),
                *points_at(fast, grids, local_lr=0.001, server_lr=10.0),
            ),
            "preset": values("released"),
            "scenario": values("mnist_w0.01_s5", "mnist_w0.1_s10"),
            "seed": values(*SEEDS),
        },
        notes="Chosen after looking at that column: a tenth of the step for FedAvg and FedAvgM. The columns here were "
        "not looked at.",
        source=SOURCE,
    )


def settled() -> SweepDefinition:
    """Six methods, each at the rates that a validation split chose, with five fresh seeds."""
    return SweepDefinition(
        name="settled_mnist",
        feeds=f"The comparison of {len(SIX)} methods chosen on a validation split, {len(COMPARED_SEEDS)} seeds: "
        "MNIST, S = 10.",
        parameters={
            "algorithm.name": values(*SIX),
            "preset": values("paper"),
            "scenario": values("mnist_w0.01_s10", "mnist_w0.1_s10", "mnist_w1_s10"),
            "seed": values(*COMPARED_SEEDS),
            "chosen": values("sweeps/chosen_settled_mnist.yaml"),
        },
        notes="Each method has the pair of rates with the best mean validation accuracy of the last 50 rounds at "
        "omega = 0.01, seed 0, which is not among the seeds here; omega = 0.1 and 1 take the same pairs. "
        "rates_validation_mnist is the search, its header has the command that writes the chosen values. "
        "All methods have nine points each and decays 0.5.",
        source=SOURCE,
    )


def norms(grids: Mapping[str, Axes]) -> SweepDefinition:
    """Four methods with BatchNorm, GroupNorm and without normalisation, over the skew."""
    return SweepDefinition(
        name="norms_mnist",
        feeds="What normalisation does to workers with skewed data: batch, group or none over omega. MNIST, S = 10.",
        parameters={
            "point": values(*points_at(NORMALISED, grids, local_lr=0.1, server_lr=1.0)),
            "model.norm": values("batch", "group", "none"),
            "preset": values("paper"),
            "scenario": values(*reversed(with_ten("mnist"))),
            "seed": values(*SEEDS),
        },
        notes="local_lr = 0.1, server_lr = 1 is the one pair for all methods that has the best top accuracy under "
        "preset paper in reports/rates; it is not chosen again for each normalisation.",
        source=SOURCE,
    )


def cifar10(num_rounds: int) -> dict[str, dict[str, Any]]:
    """What all sweeps on CIFAR-10 share: an evaluation every tenth round."""
    return {"num_rounds": values(num_rounds), "evaluation.every": values(10)}


def choose_cifar10(grids: Mapping[str, Axes]) -> SweepDefinition:
    """Every method at three local rates, evaluated on held-out training data."""
    return SweepDefinition(
        name="choose_cifar10",
        feeds=f"The local rate of each of {len(METHODS)} methods for columns_cifar10: CIFAR-10, omega = 0.1, S = 10, "
        "seed 0.",
        parameters={
            "point": values(
                *(point(name, grids[name], local_lr=local, server_lr=1.0) for name in METHODS for local in LOCAL_RATES)
            ),
            "scenario": values("cifar10_w0.1_s10"),
            "data.validation_fraction": values(HELD_OUT),
            **cifar10(SEARCH_ROUNDS_CIFAR10),
            "precision": values("bf16-mixed"),
            "seed": values(SEARCH_SEED),
        },
        notes="Three points for every method, evaluated on a tenth of the training data; decays 0.5, other fields at "
        "their defaults. Then: sweep best choose_cifar10 --select-on validation --by test/accuracy --last 30 "
        "--reuse cifar10_w1_s10=cifar10_w0.1_s10 --reuse cifar10_w0.01_s10=cifar10_w0.1_s10 "
        "--write sweeps/chosen_columns_cifar10.yaml",
        source=SOURCE,
    )


def precision_cifar10(grids: Mapping[str, Axes]) -> SweepDefinition:
    """Three methods in float32 and with products in bfloat16."""
    return SweepDefinition(
        name="precision_cifar10",
        feeds="Does bf16-mixed give the curves of float32? CIFAR-10, omega = 0.1, S = 10, seed 0.",
        parameters={
            "point": values(*points_at(("fedavg", "fedavgm", "gradma"), grids, local_lr=0.1, server_lr=1.0)),
            "precision": values("float32", "bf16-mixed"),
            "scenario": values("cifar10_w0.1_s10"),
            **cifar10(SEARCH_ROUNDS_CIFAR10),
            "seed": values(SEARCH_SEED),
        },
        notes="At the largest local rate, where round-off grows fastest.",
        source=SOURCE,
    )


def columns_cifar10() -> SweepDefinition:
    """All methods in the three columns of CIFAR-10, one seed."""
    return SweepDefinition(
        name="columns_cifar10",
        feeds=f"Tables 1 and 2, CIFAR-10, {ROUNDS_CIFAR10} of 1,000 rounds: {len(METHODS)} methods, 3 scenarios, "
        "seed 0.",
        parameters={
            "scenario": values("cifar10_w0.1_s10", "cifar10_w0.01_s10", "cifar10_w1_s10"),
            "algorithm.name": values(*METHODS),
            **chosen_cifar10(),
            "seed": values(0),
        },
        notes="Each method has the local rate that choose_cifar10 chose for it at omega = 0.1.",
        source=SOURCE,
    )


def seeds_cifar10() -> SweepDefinition:
    """Two more seeds of six methods in the column omega = 0.1."""
    return SweepDefinition(
        name="seeds_cifar10",
        feeds=f"Two more seeds of {len(SIX)} methods beside columns_cifar10: CIFAR-10, omega = 0.1, S = 10.",
        parameters={
            "algorithm.name": values(*SIX),
            "scenario": values("cifar10_w0.1_s10"),
            **chosen_cifar10(),
            "seed": values(1, 2),
        },
        notes="Each method has the local rate that choose_cifar10 chose for it.",
        source=SOURCE,
    )


def chosen_cifar10() -> dict[str, dict[str, Any]]:
    """What the columns of CIFAR-10 share."""
    return {
        **cifar10(ROUNDS_CIFAR10),
        "precision": values("bf16-mixed"),
        "chosen": values("sweeps/chosen_columns_cifar10.yaml"),
    }
