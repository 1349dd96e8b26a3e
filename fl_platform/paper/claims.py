"""The sweeps that measure what the paper claims besides its tables: less forgetting, little memory, speed-up in S.

Those on MNIST stand at one point for all methods, which comes nearest to the paper's tables (reports/rates): preset
released, local_lr = 0.1, server_lr = 1, both decays 0.5, 10 of 100 workers.
"""

import math
from typing import Any

from fl_platform.paper.sweeps import POLICIES, SEEDS, SweepDefinition, values

SOURCE = "fl_platform/paper/claims.py"
MEMORY_SIZES = tuple(range(0, 101, 10))
DECAYS = {
    "fedavg": (),
    "fedavgm": ("algorithm.momentum_decay=0.5",),
    "mifa": (),
    "gradma": ("algorithm.momentum_decay=0.5", "algorithm.memory_decay=0.5", "algorithm.qp.log_errors=true"),
}
"""The methods whose forgetting is measured, with their own arguments."""

COHORT_SIZES = (5, 10, 20, 50)
LOCAL_STEPS = 5
SMOOTHNESS = 20  # L: at least the largest curvature of a worker's loss where the runs go, by power iteration
WORKER_ROUNDS = 21_250  # S T: then T meets the corollary's conditions for every S
DIGITS = {
    "fedavg": (),
    "gradma": ("algorithm.momentum_decay=0.1", "algorithm.memory_decay=0.5", "algorithm.qp.log_errors=true"),
}
"""The methods whose speed-up is measured, with their own arguments."""


def claims() -> list[SweepDefinition]:
    """The sweeps of reports/speedup and reports/forgetting."""
    return [speed_up(), forgetting(), memory_sizes(), memory_policies()]


def corollary_point(cohort_size: int) -> list[str]:
    """T, and both rates of corollary 1 for it: eta_l = 1 / (sqrt(T) L I), eta_g = sqrt(S / I)."""
    num_rounds = math.ceil(WORKER_ROUNDS / cohort_size)
    local_lr, server_lr = 1 / (math.sqrt(num_rounds) * SMOOTHNESS * LOCAL_STEPS), math.sqrt(cohort_size / LOCAL_STEPS)
    return [f"num_rounds={num_rounds}", f"local_lr={local_lr:.5g}", f"server_lr={server_lr:.5g}"]


def fewest_rounds(cohort_size: int, num_workers: int, momentum_decay: float) -> float:
    """The T from which on corollary 1 holds."""
    size, others, rest = cohort_size, num_workers - 1, (1 - momentum_decay) ** 2
    noise = 128 * (num_workers - size) / (rest * math.sqrt(LOCAL_STEPS * size) * others)
    drift = (momentum_decay * size * others + 4 * num_workers * (size - 1)) ** 2
    return max(
        160.0,
        drift / (LOCAL_STEPS**2 * rest**2 * size * others**2),
        (noise + math.sqrt(noise**2 + 1280)) ** 2 / 4,
    )


def speed_up() -> SweepDefinition:
    """FedAvg and GradMA at the rates of corollary 1, and all cohort sizes at those of the largest."""
    largest = max(COHORT_SIZES)
    others = [size for size in COHORT_SIZES if size != largest]
    settings = [(size, size) for size in COHORT_SIZES] + [(size, largest) for size in others]
    points = [
        " ".join([f"algorithm.name={name}", f"cohort_size={size}", *corollary_point(at), *own])
        for size, at in sorted(settings, key=lambda setting: setting[0] - 2 * setting[1])  # short runs first
        for name, own in DIGITS.items()
    ]
    return SweepDefinition(
        name="speedup_digits",
        feeds="Corollary 1, linear speed-up in S: rounds to a training loss for S = 5, 10, 20, 50, digits, five seeds.",
        parameters={
            "point": values(*points),
            "data.name": values("digits"),
            "data.dirichlet_omega": values(0.1),
            "num_workers": values(100),
            "model.name": values("tanh_mlp"),
            "model.norm": values("none"),
            "batch_size": values(1024),
            "local_steps": values(LOCAL_STEPS),
            "evaluation.every": values(25),
            "evaluation.workers": values(True),
            "evaluation.worker_samples": values("training"),
            "engine": values("stacked"),
            "seed": values(0, 1, 2, 3, 4),
        },
        notes="A smooth non-convex loss (tanh, no normalisation), full local gradients (no worker has 1,024 samples), "
        "L = 20, I = 5, N = 100. Every S at the corollary's rates for T = 21,250 / S rounds, and S = 5, 10, 20 at "
        "those of S = 50 as well.",
        source=SOURCE,
        metric="workers/accuracy",
    )


def forgetting() -> SweepDefinition:
    """Four methods, with the accuracy of every worker on its own data."""
    return SweepDefinition(
        name="forgetting_mnist",
        feeds="Forgetting by class and by worker: FedAvg, FedAvgM, MIFA and GradMA, MNIST, S = 10, three seeds.",
        parameters={
            "point": values(*(" ".join([f"algorithm.name={name}", *own]) for name, own in DECAYS.items())),
            **rates(),
            "evaluation.workers": values(True),
            "evaluation.worker_samples": values("training"),
            "evaluation.each_worker": values(True),
            "evaluation.workers_every": values(5),
            "scenario": values("mnist_w0.1_s10", "mnist_w0.01_s10"),
            "seed": values(*SEEDS),
        },
        notes="One point for all methods: preset released, local_lr = 0.1, server_lr = 1, decays 0.5. Every worker is "
        "scored on the samples it trains on, every 5 rounds; nothing is held out, so training is that of the tables.",
        source=SOURCE,
    )


def memory_sizes() -> SweepDefinition:
    """GradMA-S over the size of its memory."""
    return SweepDefinition(
        name="memory_mnist",
        feeds="GradMA-S over the memory size m, MNIST, omega = 0.01, S = 10, three seeds; m = 0 is FedAvgM.",
        parameters={
            "algorithm.name": values("gradma_s"),
            "algorithm.memory_size": values(*MEMORY_SIZES),
            **decays(),
            **rates(),
            "scenario": values("mnist_w0.01_s10"),
            "seed": values(*SEEDS),
        },
        notes="One point for all: preset released, local_lr = 0.1, server_lr = 1, decays 0.5.",
        source=SOURCE,
    )


def memory_policies() -> SweepDefinition:
    """GradMA-S under the rules for which slot of a small memory is overwritten."""
    return SweepDefinition(
        name="policies_mnist",
        feeds="GradMA-S, m = 20 and 50, under five rules for which slot is overwritten, MNIST, omega = 0.01, S = 10.",
        parameters={
            "algorithm.name": values("gradma_s"),
            "algorithm.memory_policy": values(*POLICIES),
            "algorithm.memory_size": values(20, 50),
            **decays(),
            **rates(),
            "scenario": values("mnist_w0.01_s10"),
            "seed": values(*SEEDS),
        },
        notes="One point for all: preset released, local_lr = 0.1, server_lr = 1, decays 0.5. The paper's rule is "
        "least_frequent; its six runs are also trials of memory_mnist, and are not run twice.",
        source=SOURCE,
    )


def rates() -> dict[str, dict[str, Any]]:
    """The pair of rates at which all methods are compared."""
    return {"preset": values("released"), "local_lr": values(0.1), "server_lr": values(1.0)}


def decays() -> dict[str, dict[str, Any]]:
    """GradMA's decays."""
    return {"algorithm.momentum_decay": values(0.5), "algorithm.memory_decay": values(0.5)}
