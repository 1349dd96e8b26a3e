"""From a configuration to a run: resolve what it leaves open, name it, build it."""

import dataclasses
import hashlib
import json
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fl_platform import models
from fl_platform.algorithms import base
from fl_platform.config.options import check_value
from fl_platform.config.plugins import import_plugins
from fl_platform.config.schema import Config, flatten, known_keys, shown, to_dict
from fl_platform.data import datasets
from fl_platform.data.deal import deal, prepare
from fl_platform.errors import UserError, did_you_mean
from fl_platform.federation.module import FederatedModule
from fl_platform.models.layers import BatchNorm
from fl_platform.models.network import Network
from fl_platform.seeding import torch_generator


def resolve(config: Config, *, drop_unused: bool = False) -> Config:
    """Every key filled in and every name checked, before any work starts.

    ``drop_unused`` lets a sweep range over algorithms and over fields that only some of them have: runs that differ
    in a dropped field alone are one run.
    """
    import_plugins(config.plugins)
    dataset = datasets.get(config.data.name)
    fields = {f.name: f.default for f in base.hyper_parameters(base.get(config.algorithm["name"]))}
    resolved = dataclasses.replace(
        config,
        num_rounds=config.num_rounds or dataset.num_rounds,
        model=dataclasses.replace(config.model, name=config.model.name or dataset.default_model),
        evaluation=dataclasses.replace(
            config.evaluation,
            every=config.evaluation.every or dataset.evaluation_every,
            targets=list(dataset.targets) if config.evaluation.targets is None else config.evaluation.targets,
        ),
        algorithm={"name": config.algorithm["name"], **fields, **algorithm_fields(config.algorithm, drop_unused)},
    )
    make_algorithm(resolved).check(resolved)
    models.check_name(str(resolved.model.name))
    return resolved


def algorithm_fields(given: dict[str, Any], drop_unused: bool = False) -> dict[str, Any]:
    """The given fields of ``algorithm``, typed and checked against the algorithm's own."""
    kind = base.get(given["name"])
    fields = {f.name: f for f in base.hyper_parameters(kind)}
    typed = {}
    for name, value in given.items():
        if name == "name":
            continue
        key = f"algorithm.{name}"
        if name not in fields:
            others = base.owners(name)
            if others and drop_unused:
                continue
            hint = f"; {', '.join(others)} have it" if others else did_you_mean(name, fields)
            raise UserError(f"{key}={value}: {kind.name} has no such field; it has {', '.join(fields) or 'none'}{hint}")
        schema = dataclasses.make_dataclass("Field", [(name, fields[name].type, fields[name].default)])
        try:
            typed[name] = getattr(OmegaConf.to_object(OmegaConf.merge(schema, {name: value})), name)
        except (OmegaConfBaseException, ValueError, OverflowError):
            expected = getattr(fields[name].type, "__name__", fields[name].type)
            raise UserError(f"{key}={shown(value)} has the wrong type; expected {expected}") from None
        check_value(key, typed[name], fields[name])
    return typed


def make_algorithm(config: Config) -> base.Algorithm:
    return base.get(config.algorithm["name"])(**{k: v for k, v in config.algorithm.items() if k != "name"})


def identity(config: Config) -> dict[str, Any]:
    """The resolved keys that say which experiment this is: not where or how it is carried out."""
    unused = {"trainer", "qp", "memory"} - set(base.get(config.algorithm["name"]).uses)
    options = known_keys()
    kept = {}
    for key, value in flatten(to_dict(config)):
        option = options.get(key)
        if key.split(".")[0] in unused or (option is not None and not option.metadata["identity"]):
            continue
        if value == {}:  # an empty open group says nothing
            continue
        kept[key] = value
    for key in unused_options(config):
        kept.pop(key, None)
    return kept


def unused_options(config: Config) -> list[str]:
    """Keys that another key has switched off."""
    switches = {
        "data.dirichlet_omega": config.data.partition == "dirichlet",
        "data.shards_per_worker": config.data.partition == "shards",
        "availability.failure_probability": config.availability.name == "bernoulli",
        "availability.leave_probability": config.availability.name == "markov",
        "availability.return_probability": config.availability.name == "markov",
        "faults.probability": config.faults.kind != "none",
        "faults.scale": config.faults.kind == "huge",
    }
    return [key for key, is_used in switches.items() if not is_used]


def digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def run_id(config: Config) -> str:
    """Hash of the resolved configuration: equal experiments share it."""
    return digest(identity(config))


def group_id(config: Config) -> str:
    """Hash of the configuration without its seed: the runs a table cell averages share it."""
    return digest({key: value for key, value in identity(config).items() if key != "seed"})


def build(config: Config) -> FederatedModule:
    """Data, network and worker pool of a resolved configuration."""
    dataset = datasets.get(config.data.name)
    train_set, test_set = prepare(config)
    network = make_network(config, dataset)
    partition = deal(config, train_set.labels.numpy())
    return FederatedModule(config, dataset, network, train_set, test_set, partition)


def make_network(config: Config, dataset: datasets.Dataset) -> Network:
    """The configured model, with what the algorithm asks of it."""
    module = models.build(
        str(config.model.name),
        dataset.shape,
        dataset.num_classes,
        norm=config.model.norm,
        width=config.model.width,
        options=config.model.options,
        generator=torch_generator(config.seed, "init"),
        adapt=make_algorithm(config).adapt_network,
    )
    if config.batch_size == 1 and any(isinstance(child, BatchNorm) for child in module.modules()):
        raise UserError(f"batch_size=1 with model.name={config.model.name}: BatchNorm needs at least 2 samples")
    try:
        return Network(module)
    except ValueError as error:
        raise UserError(f"model.name={config.model.name} cannot be trained by workers: {error}") from None
