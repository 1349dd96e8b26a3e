"""Small federations for tests: synthetic images, chosen worker sizes, the real Trainer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch

from fl_platform.algorithms.base import Algorithm
from fl_platform.config.compose import compose
from fl_platform.config.options import walk
from fl_platform.config.registry import ALGORITHMS
from fl_platform.config.resolve import resolve
from fl_platform.config.schema import Config
from fl_platform.data.partition import Partition
from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset
from fl_platform.federation.build import make_algorithm, make_network
from fl_platform.federation.checkpoints import AtomicCheckpointIO, RoundCheckpoint
from fl_platform.federation.module import FederatedModule
from fl_platform.seeding import generator

SIZES = (5, 9, 20, 7, 12, 30)


@dataclass
class Finished:
    """A module after training, with the algorithm that trained it."""

    module: FederatedModule
    algorithm: Any

    @property
    def params(self) -> torch.Tensor:
        return self.module.global_params

    def figures(self) -> list[dict[str, Any]]:
        """The history without clock readings."""
        return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in self.module.history]


def images(count: int, shape: tuple[int, int, int], classes: int, stream: str) -> Samples:
    rng = generator(7, stream)
    labels = rng.integers(0, classes, count)
    pixels = rng.integers(0, 200, (count, *shape)) + 5 * labels[:, None, None, None]
    return Samples.from_arrays(pixels.astype(np.uint8), labels)


def synthetic_dataset(shape: tuple[int, int, int] = (1, 4, 4), classes: int = 3) -> Dataset:
    return described(Dataset, name="synthetic", num_classes=classes, shape=shape, mean=(0.5,), std=(0.5,))


def described(kind: type[Dataset], **fields: Any) -> Dataset:
    """A data set like another with other fields, not registered."""
    return type(kind.__name__, (kind,), fields)()


def make_config(*args: str, workers: int = len(SIZES)) -> Config:
    defaults = [
        f"num_workers={workers}", "cohort_size=3", "num_rounds=3", "local_steps=3", "batch_size=8", "local_lr=0.1",
        "precision=float64", "data.name=digits", "model.name=mlp", "tracking.mode=disabled",
    ]  # fmt: skip
    if any(arg.startswith("local_epochs=") for arg in args):
        defaults.remove("local_steps=3")
    config = compose([*defaults, *needed(args), *args])
    if "memory_size" in dict(walk(ALGORITHMS.get(config.algorithm["name"]))) and "memory_size" not in config.algorithm:
        config.algorithm["memory_size"] = max(config.cohort_size, workers - 1)
    return resolve(config).config


def needed(args: tuple[str, ...]) -> list[str]:
    """What the algorithm among the arguments needs, unless they say otherwise."""
    given = dict(word.partition("=")[::2] for word in args)
    return [need.partition("|")[0] for need in ALGORITHMS.describe(given.get("algorithm.name", "fedavg")).needs]


def make_module(
    config: Config, sizes: tuple[int, ...] = SIZES, dataset: Dataset | None = None, order: Any = None
) -> FederatedModule:
    """A module whose worker i owns the next sizes[i] samples; ``order`` relabels the workers."""
    dataset = dataset or synthetic_dataset()
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    train = images(int(offsets[-1]), dataset.shape, dataset.num_classes, "train")
    test = images(60, dataset.shape, dataset.num_classes, "test")
    partition = Partition(np.arange(offsets[-1], dtype=np.int64), offsets)
    if order is not None:
        pieces = [partition.of(worker) for worker in order]
        partition = Partition(
            np.concatenate(pieces), np.concatenate([[0], np.cumsum([len(p) for p in pieces])]).astype(np.int64)
        )
    return FederatedModule(
        config, dataset, make_network(config, dataset, make_algorithm(config)), train, test, partition
    )


def train(
    config: Config,
    module: FederatedModule | None = None,
    *,
    algorithm: Algorithm | None = None,
    checkpoints: Path | None = None,
    every: int = 1,
    resume: Path | None = None,
    callbacks: tuple[L.Callback, ...] = (),
    ranks: int = 1,
    strategy: Any = None,
    **how: Any,
) -> Finished:
    """Run a federation through the real Trainer; ``strategy`` brings its accelerator and device along."""
    module = module or make_module(config, **how)
    algorithm = algorithm or make_algorithm(config)
    saving = [RoundCheckpoint(checkpoints, every)] if checkpoints else []
    trainer = L.Trainer(
        accelerator="auto" if strategy else "cpu", devices=ranks, strategy=strategy or ("ddp" if ranks > 1 else "auto"),
        max_epochs=config.num_rounds, logger=False, callbacks=[algorithm, *saving, *callbacks],
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, plugins=[AtomicCheckpointIO()],
        enable_checkpointing=bool(saving), default_root_dir=checkpoints,
    )  # fmt: skip
    trainer.fit(module, ckpt_path=resume, weights_only=True)
    return Finished(module, algorithm)
