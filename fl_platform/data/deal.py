"""From a configuration to the data of a run: what is trained on, what is evaluated, who owns which sample."""

import numpy as np
from numpy.typing import ArrayLike

from fl_platform import seeding
from fl_platform.config.schema import Config
from fl_platform.data import datasets
from fl_platform.data.image_set import ImageSet, hold_out
from fl_platform.data.partition import Partition, make_partition
from fl_platform.errors import UserError


def prepare(config: Config) -> tuple[ImageSet, ImageSet]:
    """(trained on, evaluated): the test set, or the share of the training data that is held out, is evaluated."""
    train, test = datasets.load(config.data.name, config.data.root)
    if config.data.validation_fraction > 0:
        return split_validation(train, config.data.validation_fraction, config.seed)
    return train, test


def split_validation(train: ImageSet, fraction: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """(training, validation): a stratified share is held out, the same for every algorithm of a seed."""
    count = round(fraction * len(train))
    if not 0 < count < len(train):
        raise UserError(
            f"data.validation_fraction={fraction:g} holds out {count} of {len(train)} training samples; "
            "it must leave at least one on either side"
        )
    kept, held = hold_out(train.labels.numpy(), count, seeding.generator(seed, "validation"))
    return train.subset(kept), train.subset(held)


def deal(config: Config, labels: ArrayLike) -> Partition:
    """The partition of a run; it depends on the seed and the data keys, not on the algorithm."""
    return make_partition(
        config.data.partition,
        np.asarray(labels),
        config.num_workers,
        seeding.generator(config.seed, "partition"),
        omega=config.data.dirichlet_omega,
        shards_per_worker=config.data.shards_per_worker,
    )
