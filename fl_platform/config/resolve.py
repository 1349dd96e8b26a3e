"""From a configuration to a ``RunSpec``: every key filled in, every name checked, the run named."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fl_platform.config.arguments import RunArguments
from fl_platform.config.compose import check_cohort, compose
from fl_platform.config.descriptions import Description
from fl_platform.config.groups import CompressionConfig
from fl_platform.config.options import counts, default_of
from fl_platform.config.partitions import partition_text, with_partition
from fl_platform.config.plugins import import_plugins
from fl_platform.config.presets import preset_values
from fl_platform.config.registry import ALGORITHMS, DATASETS, check_model_name
from fl_platform.config.schema import Config, flatten, known_keys, shown, to_dict
from fl_platform.config.typed import typed
from fl_platform.errors import UserError, did_you_mean

Options = Mapping[str, "dataclasses.Field[Any]"]


@dataclass(frozen=True)
class RunSpec:
    """One run, as it is handed to whatever carries it out, logs it or looks for its files.

    ``config`` has every key filled in. ``run_id`` is a hash of the experiment it describes, so that equal experiments
    share it; ``group_id`` is the same without the seed: the runs a table cell averages share it. ``directory`` is
    ``<output.dir>/<run id>``.
    """

    config: Config
    run_id: str
    group_id: str
    directory: Path

    @property
    def output(self) -> Path:
        """Return ``output.dir``."""
        return self.directory.parent

    @property
    def algorithm(self) -> str:
        """Return the name of the algorithm."""
        return str(self.config.algorithm["name"])

    @property
    def title(self) -> str:
        """Return what a progress bar calls the run."""
        return f"{self.algorithm} on {self.config.data.name}"

    @property
    def group(self) -> str:
        """Return what W&B calls the runs that differ in their seed only, such as ``gradma mnist w0.1 S10 · 3f2a``."""
        data = self.config.data
        is_papers = data.partition == "dirichlet"
        skew = f"w{data.dirichlet_omega:g}" if is_papers else partition_text(vars(data).get).replace(" ", "")
        parts = [self.algorithm, data.name, skew, f"S{self.config.cohort_size}"]
        return f"{' '.join(parts)[:100]} · {self.group_id[:4]}"

    @property
    def name(self) -> str:
        """Return what W&B calls the run."""
        return f"{self.algorithm}-{self.config.data.name}-seed{self.config.seed}-{self.run_id}"


def spec_of(arguments: RunArguments) -> RunSpec:
    """Return the run that the arguments of ``run`` describe; UserError where they describe none."""
    return resolve(compose(arguments.keys, arguments.config), drop_unused=arguments.drop_unused)


def spec_as_given(arguments: RunArguments) -> RunSpec:
    """As ``spec_of``, for arguments that are only looked at: plugins that they name are not imported.

    Where there are any, keys stay as they are given, without a check of those that only the plugins know, and the ids
    are hashes of the given keys.
    """
    config = compose(arguments.keys, arguments.config)
    if not config.plugins:
        return resolve(config, drop_unused=arguments.drop_unused)
    values = dict(flatten(to_dict(config)))
    run_id, group_id = digest(values), digest({key: value for key, value in values.items() if key != "seed"})
    return RunSpec(config, run_id, group_id, Path(config.output.dir) / run_id)


def resolve(config: Config, *, drop_unused: bool = False, directory: Path | None = None) -> RunSpec:
    """Fill in every key and check every name, before any work starts.

    ``drop_unused`` lets a sweep range over algorithms and over fields that only some of them have: runs that differ
    in a dropped field alone are one run. ``directory`` is that of a run to go on with: it decides the run id and
    ``output.dir``. Raises UserError for names, types and values that are not allowed.
    """
    import_plugins(config.plugins)
    dataset = DATASETS.describe(config.data.name)
    kind = ALGORITHMS.describe(config.algorithm["name"])
    resolved = dataclasses.replace(
        with_partition(config, dataset),
        num_rounds=config.num_rounds or dataset.num_rounds,
        model=dataclasses.replace(config.model, name=config.model.name or dataset.default_model),
        evaluation=dataclasses.replace(
            config.evaluation,
            every=config.evaluation.every or dataset.evaluation_every,
            targets=list(dataset.targets) if config.evaluation.targets is None else config.evaluation.targets,
        ),
        compression=filled_in(config.compression),
        algorithm=algorithm_values(kind, config.algorithm, config.preset, drop_unused=drop_unused),
    )
    if directory is not None:
        resolved = dataclasses.replace(resolved, output=dataclasses.replace(config.output, dir=str(directory.parent)))
    check_cohort(resolved)
    resolved.algorithm.update(kind.open_values(resolved))
    check_stored("algorithm", resolved.algorithm, f"algorithm.name={resolved.algorithm['name']}")
    check_stored("data.partition_options", resolved.data.partition_options, f"data.partition={resolved.data.partition}")
    check_needs(kind, resolved)
    kind.check(resolved)
    check_model_name(str(resolved.model.name))
    check_faults(resolved)
    check_worker_tests(resolved)
    check_sampling(resolved)
    named = identity(resolved)
    run_id = digest(named) if directory is None else directory.name
    without_seed = {key: value for key, value in named.items() if key != "seed"}
    return RunSpec(resolved, run_id, digest(without_seed), Path(resolved.output.dir) / run_id)


def filled_in(compression: CompressionConfig) -> CompressionConfig:
    """Return the keys of compression with error feedback decided, so that a run with the default is the one with it."""
    if compression.name == "none" or compression.error_feedback is not None:
        return compression
    return dataclasses.replace(compression, error_feedback=compression.name == "topk")


def check_stored(group: str, values: Mapping[str, Any], owner: str) -> None:
    """Raise UserError for a field of a plugin that no file of configuration can hold, such as an array."""
    for key, value in flatten(dict(values)):
        if value is dataclasses.MISSING:
            raise UserError(f"{group}.{key} of {owner} has no default; give it a value, or declare one by option(...)")
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise UserError(
                f"{group}.{key} of {owner} is of type {type(value).__name__}; a field must be a number, a text, true, "
                "false, null or a list of these; what the server of a method keeps is declared by state(...)"
            ) from None


def check_needs(kind: Description, config: Config) -> None:
    """Raise UserError for a value with which the algorithm does not work."""
    values = dict(flatten(to_dict(config))) if kind.needs else {}
    for need in kind.needs:
        key, _, wanted = need.partition("=")
        if shown(values[key]) not in wanted.split("|"):
            raise UserError(
                f"{key}={shown(values[key])} does not go with algorithm.name={kind.name}; "
                f"it needs {key}={' or '.join(wanted.split('|'))}"
            )


def check_sampling(config: Config) -> None:
    """Raise UserError where a cohort can be larger than the memory of the algorithm."""
    slots = config.algorithm.get("memory_size")
    if config.cohort_sampling == "poisson" and slots and slots < config.num_workers:
        raise UserError(
            f"algorithm.memory_size={slots} is not allowed with cohort_sampling=poisson, whose cohorts may have all "
            f"workers; it must be 0 or >= num_workers={config.num_workers}"
        )


MIXING_OWNERS = ("iid", "dirichlet", "dirichlet_workers", "classes", "quantity", "shards")
"""Partitions whose workers have samples of several owners, if there are owners."""


def check_worker_tests(config: Config) -> None:
    """Raise UserError where workers are to be scored and have no test samples of their own."""
    needs_tests = config.evaluation.workers and config.evaluation.worker_samples == "tests"
    is_without = needs_tests and not config.data.worker_test_fraction
    if is_without and config.data.partition in MIXING_OWNERS:  # of others it depends on the data
        raise UserError(
            "evaluation.workers=true with data.worker_test_fraction=0: workers have no test samples; "
            "give the share of its data that each holds out, such as data.worker_test_fraction=0.2, "
            "or score workers where they train with evaluation.worker_samples=training"
        )


def check_faults(config: Config) -> None:
    """Raise UserError for faults that cannot be injected as configured."""
    if config.faults.kind == "label_flip" and config.faults.workers != "fixed":
        raise UserError(
            f"faults.kind=label_flip needs faults.workers=fixed, found {config.faults.workers}: "
            "a worker's data is the same in every round"
        )


def algorithm_values(
    kind: Description, given: dict[str, Any], preset: str, *, drop_unused: bool = False
) -> dict[str, Any]:
    """Return the algorithm's name and all its fields, nested as it declares them: given, of the preset, or default.

    Raises UserError for a given field that the algorithm does not have, unless ``drop_unused`` and another has it.
    """
    options = kind.options
    values = {name: default_of(field) for name, field in options.items()} | preset_values(preset, options.items())
    for name, value in leaves({name: value for name, value in given.items() if name != "name"}, options):
        if name in options:
            values[name] = typed(f"algorithm.{name}", value, options[name])
        elif not drop_unused or not owners(name):
            raise unknown_field(kind.name, name, value, options)
    nested: dict[str, Any] = {"name": kind.name}
    for name, value in values.items():
        *groups, field = name.split(".")
        place = nested
        for group in groups:
            place = place.setdefault(group, {})
        place[field] = value
    return nested


def leaves(given: dict[str, Any], options: Options, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of nested values; a mapping given for an option is its value."""
    for name, value in given.items():
        if isinstance(value, dict) and value and prefix + name not in options:
            yield from leaves(value, options, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def owners(name: str) -> list[str]:
    """Return the algorithms that have a field of this dotted name."""
    return [algorithm for algorithm in ALGORITHMS.names() if name in ALGORITHMS.describe(algorithm).options]


def unknown_field(algorithm: str, name: str, value: Any, options: Options) -> UserError:
    """The error for an option that the algorithm does not have; it names the algorithms that have it."""
    key = f"algorithm.{name}"
    if any(known.startswith(f"{name}.") for known in options):
        return UserError(f"{key}={shown(value)} has the wrong type; {key} is a group of keys")
    others = owners(name)
    verb = "has" if len(others) == 1 else "have"
    hint = f"; {', '.join(others)} {verb} it" if others else did_you_mean(name, options)
    return UserError(f"{key}={value}: {algorithm} has no such field; it has {', '.join(options) or 'none'}{hint}")


def all_options(config: Config) -> dict[str, "dataclasses.Field[Any]"]:
    """Return every option of a configuration by dotted key, its algorithm's included."""
    fields = ALGORITHMS.describe(config.algorithm["name"]).options.items()
    return {**known_keys(), **{f"algorithm.{name}": field for name, field in fields}}


def identity(config: Config) -> dict[str, Any]:
    """Return the resolved keys that say which experiment this is, not where or how it is carried out.

    Options whose condition does not hold are left out, and so are open groups that are empty.
    """
    options, values = all_options(config), dict(flatten(to_dict(config)))
    return {
        key: value
        for key, value in values.items()
        if not key.startswith("trainer") and value != {} and (key not in options or counts(key, options[key], values))
    }


def digest(values: dict[str, Any]) -> str:
    """Twelve hexadecimal digits of a hash of the values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
