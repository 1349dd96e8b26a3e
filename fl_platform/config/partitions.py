"""The partition of a configuration: its rule, its parameters, how many workers it has, and what reports call it."""

import dataclasses
from collections.abc import Callable
from typing import Any

from fl_platform.config.data_schema import DataConfig
from fl_platform.config.descriptions import Description
from fl_platform.config.options import default_of
from fl_platform.config.registry import PARTITIONS
from fl_platform.config.schema import Config, known_keys
from fl_platform.errors import UserError, did_you_mean

NUM_WORKERS = 100
"""N where neither the configuration nor the partition says how many workers there are."""


def with_partition(config: Config, dataset: Description) -> Config:
    """Return the configuration with its partition and number of workers filled in.

    Raises UserError for an unknown rule or parameter, keys that contradict each other, and a bad partition file.
    """
    data = config.data
    name = data.partition or ("file" if data.partition_file else dataset.partition)
    rule = PARTITIONS.describe(name)
    if (name == "file") != (data.partition_file is not None):
        raise UserError(
            f"data.partition={name} with data.partition_file={data.partition_file or 'null'}: "
            "data.partition=file and a file go together"
        )
    if data.partition_sha256 is not None and name != "file":
        raise UserError(
            f"data.partition_sha256={data.partition_sha256} with data.partition={name}: it is the content of a "
            "data.partition_file, and there is none"
        )
    data = dataclasses.replace(data, partition=name, partition_options=own_values(rule, name, data.partition_options))
    num_workers = config.num_workers
    if name == "file":
        data, num_workers = with_split(data, num_workers)
    elif name == "natural" and num_workers is None:
        num_workers = dataset.num_owners or PARTITIONS.get("natural").num_owners(data.name, data.root)
    return dataclasses.replace(config, data=data, num_workers=num_workers or NUM_WORKERS)


def own_values(rule: Description, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return every parameter that a plugin's rule declares: given, or its default."""
    own = {key: field for key, field in rule.options.items() if f"data.{key}" not in known_keys()}
    for key, value in given.items():
        if key not in own:
            hint = did_you_mean(key, own)
            raise UserError(
                f"data.partition_options.{key}={value}: data.partition={name} has no such parameter; "
                f"it has {', '.join(own) or 'none of its own'}{hint}"
            )
    from fl_platform.config.typed import typed  # and OmegaConf, which reports do without

    return {
        key: typed(f"data.partition_options.{key}", given[key], field) if key in given else default_of(field)
        for key, field in own.items()
    }


def with_split(data: DataConfig, num_workers: int | None) -> tuple[DataConfig, int]:
    """Return the keys of a partition from a file, with its content's digest, and its number of workers."""
    from fl_platform.config.partition_file import read_split  # NumPy, which no other partition needs here

    split = read_split(str(data.partition_file))
    if data.partition_sha256 not in (None, split.sha256):
        raise UserError(
            f"data.partition_file={data.partition_file} has other content than data.partition_sha256="
            f"{data.partition_sha256}; its own is {split.sha256}"
        )
    if num_workers not in (None, split.num_workers):
        raise UserError(
            f"num_workers={num_workers} does not go with data.partition_file={data.partition_file}, "
            f"which has {split.num_workers} workers; leave num_workers out"
        )
    return dataclasses.replace(data, partition_sha256=split.sha256), split.num_workers


def parameters(name: str) -> list[str]:
    """Return the keys of ``data`` that are parameters of a built-in rule, without ``data.`` in front."""
    return [
        key.removeprefix("data.")
        for key, field in known_keys().items()
        if key.startswith("data.") and (when := field.metadata.get("when")) and when[0] == "data.partition"
        if name in when[1:] and field.metadata.get("identity", True)
    ]


def partition_text(value: Callable[[str], Any]) -> str:
    """Return what reports call a partition, such as ``shards 2``; ``value`` gives the value of a key of ``data``.

    Values that a run did not record are left out.
    """
    name = str(value("partition"))
    own = value("partition_options")
    given = [value(key) for key in parameters(name)] + (list(own.values()) if isinstance(own, dict) else [])
    return " ".join([name, *(_shown(one) for one in given if one is not None and one == one and one != {})])


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return " ".join(f"{key}={_shown(one)}" for key, one in value.items())
    text = str(value)
    return text[:8] if len(text) == 64 else text  # a digest
