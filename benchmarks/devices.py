"""``python -m benchmarks --device DEVICE``: local training of W1 to W4 on a device, over a bound of its own arithmetic.

The bound is the FLOPs of a round's local steps over the FLOP/s of a float32 matrix product on the same device.
"""

import time
from dataclasses import dataclass

import torch

from benchmarks.clock import Ratio
from benchmarks.federation import WARM_UP, flop_per_sample, small_model_arguments
from benchmarks.table import Entry
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.engines.choice import ENGINES
from fl_platform.federation.build import build, make_algorithm
from fl_platform.federation.trainer import attach, check_device, make_trainer, quieten_lightning
from fl_platform.runs import metrics

CASES = {
    "w1": ("data.name=random_mnist", "model.name=mlp", "model.norm=none"),
    "w2": ("data.name=random_cifar10", "model.name=lenet5"),
    "w3": ("data.name=random_cifar100", "model.name=vgg11"),
    "w4": ("data.name=random_tiny_imagenet", "model.name=resnet20"),
}
SMALL = ("cohort_size=2", "local_steps=1", "batch_size=8")
SIDES = {True: 512, False: 4096}
REPEATS = 5


@dataclass(frozen=True)
class Timed:
    """The fastest round's local training and server step, and the FLOPs of its local steps."""

    seconds: float
    flop: float


def product_rate(device: torch.device, quick: bool) -> float:
    """FLOP/s of the fastest of a few float32 matrix products."""
    side = SIDES[quick or device.type == "cpu"]
    left, right = (torch.ones(side, side, device=device) for _ in range(2))
    taken = []
    for _ in range(1 + REPEATS):
        begin = time.perf_counter()
        (left @ right)[0, 0].item()  # waits for it
        taken.append(time.perf_counter() - begin)
    return 2 * side**3 / min(taken[1:])


def one_round(case: str, engine: str, device: str, quick: bool) -> Timed:
    """Run a few rounds without evaluation or logging."""
    rounds = WARM_UP + (1 if quick else 5)
    args = [*small_model_arguments(device), *CASES[case], *(SMALL if quick else ()), f"engine={engine}"]
    spec = resolve(compose([*args, f"num_rounds={rounds}", "evaluation.every=1000000", "tracking.mode=disabled"]))
    algorithm = make_algorithm(spec.config)
    module = build(spec.config, algorithm)
    attach(make_trainer(spec), [], [algorithm]).fit(module)
    seconds = min(row[metrics.ROUND_SECONDS] for row in module.history)
    config = spec.config
    samples = config.cohort_size * (config.local_steps or 1) * config.batch_size
    return Timed(seconds, flop_per_sample(module.cpu())[0] * samples)


def measure(device: str, quick: bool, only: list[str] | None = None) -> list[Entry]:
    """An entry per workload and engine; UserError for a device that is not there."""
    check_device("--device", device, "cpu")
    quieten_lightning()
    rate = product_rate(torch.device(device), quick)
    entries = []
    for case in only or CASES:
        for engine in ENGINES:
            found = one_round(case, engine, device, quick)
            bound = found.flop / rate
            why = (
                f"{1000 * found.seconds:.2f} ms a round, bound {1000 * bound:.2f} ms "
                f"({found.flop / 1e9:.2f} GFLOP, {rate / 1e9:,.0f} GFLOP/s)",
            )
            entries.append(Entry(f"{case}_{engine}_{device}", Ratio(found.seconds / bound), "x bound", "", why))
    return entries
