"""The data of a run, from its configuration: training and evaluation sets, and the partition over workers."""

import dataclasses

import numpy as np

from fl_platform import seeding
from fl_platform.config.registry import PARTITIONS
from fl_platform.config.schema import Config
from fl_platform.data import datasets
from fl_platform.data.partition import Partition, make_partition
from fl_platform.data.samples import Samples, hold_out
from fl_platform.data.worker_tests import split_worker_tests
from fl_platform.errors import UserError


def prepare(config: Config) -> tuple[Samples, Samples]:
    """Load the data of a run; returns (training set, evaluation set).

    The evaluation set is the test set, or a part of the training data if ``data.validation_fraction`` > 0.
    Raises ``UserError`` if the data is missing or damaged, or the fraction leaves one side empty.
    """
    train, test = datasets.load(config.data.name, config.data.root)
    if config.data.validation_fraction > 0:
        by_owner = config.data.partition == "natural" and train.owners is not None
        return split_validation(train, config.data.validation_fraction, config.seed, by_owner=by_owner)
    return train, test


def split_validation(train: Samples, fraction: float, seed: int, *, by_owner: bool = False) -> tuple[Samples, Samples]:
    """Hold out a stratified fraction; returns (training, validation), which depend on the seed alone.

    ``by_owner`` takes it from every owner's samples and leaves each at least two, so that none is lost as a worker.
    Raises ``UserError`` if either side would be empty.
    """
    count = round(fraction * len(train))
    if not 0 < count < len(train):
        raise UserError(
            f"data.validation_fraction={fraction:g} holds out {count} of {len(train)} training samples; "
            "it must leave at least one on either side"
        )
    if by_owner:
        assert train.owners is not None
        order = np.argsort(train.owners.numpy(), kind="stable")
        _, sizes = np.unique(train.owners.numpy(), return_counts=True)
        owned = Partition(order, np.concatenate([[0], np.cumsum(sizes)]))
        kept_by, held_by = split_worker_tests(owned, train.labels.numpy(), fraction, seed, purpose="validation")
        return train.subset(np.sort(kept_by.indices)), train.subset(np.sort(held_by.indices))
    kept, held = hold_out(train.labels.numpy(), count, seeding.generator(seed, "validation"))
    return train.subset(kept), train.subset(held)


def partition_of(config: Config, train: Samples) -> Partition:
    """Divide the training samples of a resolved configuration among its workers.

    The result depends on the seed and the ``data`` keys, not on the algorithm. Raises ``UserError`` where the samples
    cannot be divided so.
    """
    data = config.data
    kind = PARTITIONS.get(str(data.partition))
    keys = {field.name: getattr(data, field.name) for field in dataclasses.fields(kind) if hasattr(data, field.name)}
    rng = seeding.generator(config.seed, "partition")
    return make_partition(kind(**keys | data.partition_options), train, config.population, rng)
