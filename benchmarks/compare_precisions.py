"""``precision=bf16-mixed`` beside float32: CPU time of whole rounds, both in turn within one process, and accuracy.

python -m benchmarks.compare_precisions [--rounds 5] [key=value ...]                # W2's shapes
python -m benchmarks.compare_precisions --accuracy [--algorithms fedavg,gradma] data.name=digits num_rounds=50
"""

import argparse
import time
from collections.abc import Iterator
from statistics import mean, median

import torch

from benchmarks.federation import w1_arguments
from fl_platform.algorithms import base
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.federation.build import build, make_algorithm
from fl_platform.federation.module import FederatedModule
from fl_platform.federation.round import Model, federated_round
from fl_platform.federation.trainer import attach, make_trainer, quieten_lightning

PRECISIONS = ("float32", "bf16-mixed")
SEEDS = (0, 1, 2)


def trained(arguments: list[str]) -> FederatedModule:
    """The module of a configuration after its rounds."""
    spec = resolve(compose([*arguments, "tracking.mode=disabled", "device=cpu", "trainer.enable_progress_bar=false"]))
    algorithm = make_algorithm(spec.config)
    module = build(spec.config, algorithm)
    attach(make_trainer(spec), [], [algorithm]).fit(module)
    return module


def round_times(arguments: list[str], rounds: int) -> Iterator[tuple[str, float, float]]:
    """Yield a part of a round and its median CPU seconds in both precisions, taken in turn after a first round."""
    modules = [trained([*arguments, f"precision={precision}", "num_rounds=1"]) for precision in PRECISIONS]
    spent: dict[str, list[list[float]]] = {"round": [[], []], "evaluation": [[], []]}
    for number in range(2, 2 + rounds):
        for which, module in enumerate(modules):
            begin = time.process_time()
            done = federated_round(module.server, Model(module.global_params, module.global_buffers), number)
            module.global_params, module.global_buffers = done.model
            middle = time.process_time()
            module.evaluate()
            spent["round"][which].append(middle - begin)
            spent["evaluation"][which].append(time.process_time() - middle)
    both = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(*spent.values(), strict=True)]
    for name, (wide, narrow) in {**spent, "both": both}.items():
        yield name, median(wide), median(narrow)


def accuracies(arguments: list[str], precision: str) -> list[float]:
    """The final accuracy of every seed."""
    modules = (trained([*arguments, f"precision={precision}", f"seed={seed}"]) for seed in SEEDS)
    return [module.evaluate().accuracy for module in modules]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--accuracy", action="store_true", help="final accuracy over three seeds instead of time")
    parser.add_argument("--algorithms", default=",".join(base.names()), help="names, with commas")
    args, arguments = parser.parse_known_args()
    torch.set_num_threads(1)
    quieten_lightning()
    if not args.accuracy:
        arguments = [*w1_arguments("data.name=random_cifar10", "model.name=lenet5", "model.norm=batch"), *arguments]
        for name, wide, narrow in round_times(arguments, args.rounds):
            print(f"{name:10} float32 {wide:.3f} s  bf16-mixed {narrow:.3f} s  float32/bf16-mixed {wide / narrow:.2f}")
        return
    for algorithm in args.algorithms.split(","):
        columns = [accuracies([*arguments, f"algorithm.name={algorithm}"], precision) for precision in PRECISIONS]
        cells = [f"{100 * mean(found):.2f} ({100 * min(found):.2f} to {100 * max(found):.2f})" for found in columns]
        print(f"| {algorithm} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
