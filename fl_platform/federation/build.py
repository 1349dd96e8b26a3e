"""Data, network and algorithm of a resolved configuration."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from fl_platform import models
from fl_platform.algorithms import base
from fl_platform.config.options import default_of
from fl_platform.config.schema import Config
from fl_platform.data import datasets
from fl_platform.data.prepare import partition_of, prepare
from fl_platform.data.sets.base import Dataset
from fl_platform.errors import UserError
from fl_platform.federation.module import FederatedModule
from fl_platform.models.layers import BatchNorm
from fl_platform.models.network import PRECISIONS, Network
from fl_platform.seeding import torch_generator


def make_algorithm(config: Config) -> base.Algorithm:
    """Return a new algorithm with the configured fields."""
    values = {name: value for name, value in config.algorithm.items() if name != "name"}
    algorithm: base.Algorithm = instantiate(base.get(config.algorithm["name"]), values)
    return algorithm


def instantiate(kind: Any, values: Mapping[str, Any]) -> Any:
    """Return ``kind(**values)`` with the nested values of a group of options as its dataclass."""
    groups = {
        field.name: type(default)
        for field in dataclasses.fields(kind)
        if field.init and dataclasses.is_dataclass(default := default_of(field))
    }
    return kind(**{name: instantiate(groups[name], v) if name in groups else v for name, v in values.items()})


def build(config: Config, algorithm: base.Algorithm) -> FederatedModule:
    """Return the module of a resolved configuration: its data, divided among workers, and the algorithm's network.

    Raises UserError where the data set is missing or does not fit, or the model cannot be trained by workers.
    """
    dataset = datasets.get(config.data.name)
    train_set, test_set = prepare(config)
    network = make_network(config, dataset, algorithm)
    partition = partition_of(config, train_set)
    return FederatedModule(config, dataset, network, train_set, test_set, partition)


def make_network(config: Config, dataset: Dataset, algorithm: base.Algorithm) -> Network:
    """Return the configured model, changed as the algorithm asks."""
    module = models.build(
        str(config.model.name),
        dataset.shape,
        dataset.num_classes,
        features=dataset.features,
        num_tokens=dataset.num_tokens,
        norm=config.model.norm,
        width=config.model.width,
        options=config.model.options,
        generator=torch_generator(config.seed, "init"),
        adapt=algorithm.adapt_network,
    )
    if config.batch_size == 1 and any(isinstance(child, BatchNorm) for child in module.modules()):
        raise UserError(f"batch_size=1 with model.name={config.model.name}: BatchNorm needs at least 2 samples")
    try:
        return Network(module, PRECISIONS[config.precision].autocast, allows_tf32=config.tf32)
    except ValueError as error:
        raise UserError(f"model.name={config.model.name} cannot be trained by workers: {error}") from None
