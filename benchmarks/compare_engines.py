"""Which engine is faster for (device, model): seconds of local training a round, both engines in turn.

    python -m benchmarks.compare_engines [--rounds 3]

``engines/choice.py`` holds what came out; run this on your machine to see whether it holds there.
"""

import argparse
import time

import numpy as np
import torch

from fl_platform import models
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.data.partition import make_partition
from fl_platform.data.partitions.even import Iid
from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset
from fl_platform.federation.build import make_algorithm
from fl_platform.federation.module import FederatedModule
from fl_platform.federation.trainer import attach, make_trainer, quieten_lightning
from fl_platform.models.network import Network
from fl_platform.seeding import generator

CASES = {
    "mlp": ((1, 28, 28), 10, ()),
    "lenet5": ((3, 32, 32), 10, ()),
    "resnet20": ((3, 32, 32), 100, ("model.width=16", "local_steps=2")),
    "vgg11": ((3, 32, 32), 100, ("cohort_size=4", "batch_size=16", "local_steps=2")),
}


def noise_images(count: int, shape: tuple[int, int, int], classes: int) -> Samples:
    rng = generator(0, "compare", count)
    return Samples.from_arrays(rng.integers(0, 256, (count, *shape)).astype(np.uint8), rng.integers(0, classes, count))


def seconds_a_round(model: str, engine: str, rounds: int) -> float:
    """The fastest of a few rounds; evaluation is not counted."""
    shape, classes, arguments = CASES[model]
    spec = resolve(
        compose(
            [f"model.name={model}", f"engine={engine}", f"num_rounds={rounds}", "tracking.mode=disabled", *arguments]
        )
    )
    config = spec.config
    scale = (0.5,) * shape[0]
    fields = {"name": "noise", "num_classes": classes, "shape": shape, "mean": scale, "std": scale}
    dataset = type("Noise", (Dataset,), fields)()
    train, test = noise_images(10_000, shape, classes), noise_images(10, shape, classes)
    network = Network(models.build(model, shape, classes, width=config.model.width))
    partition = make_partition(Iid(), train, config.population, generator(0, "partition"))
    module = FederatedModule(config, dataset, network, train, test, partition)
    started: list[float] = []
    step = module.training_step

    def timed(*batch: object) -> None:
        begin = time.perf_counter()
        step(*batch)
        started.append(time.perf_counter() - begin)

    module.training_step = timed  # type: ignore[method-assign]
    attach(make_trainer(spec), [], [make_algorithm(config)]).fit(module)
    return min(started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=list(CASES), choices=list(CASES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    quieten_lightning()
    for model in args.models:
        loop, stacked = (seconds_a_round(model, engine, args.rounds) for engine in ("loop", "stacked"))
        print(f"{model:10} loop {loop:.3f} s  stacked {stacked:.3f} s  stacked/loop {stacked / loop:.2f}", flush=True)


if __name__ == "__main__":
    main()
