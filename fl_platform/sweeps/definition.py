"""A sweep as launched: a W&B sweep YAML and the arguments added to every trial."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from fl_platform.config.compose import parse_argument, read_yaml
from fl_platform.config.groups import OutputConfig
from fl_platform.config.regular_files import read_regular
from fl_platform.errors import UserError
from fl_platform.paper.packaged import chosen_file, sweep_file
from fl_platform.runs.writing import write_atomically, writing

YAML_COPY = "sweep.yaml"
OVERRIDES_COPY = "overrides.json"
COMMAND = (
    *("${env}", "${interpreter}", "-m", "fl_platform", "run", "--skip-finished", "--continue", "--drop-unused"),
    "${args_no_hyphens}",
)
"""How the trials of a sweep that names no command are run."""
METHODS = ("grid", "random", "bayes")
LONGEST_NAME = 200
"""Bytes of a sweep's name that its directory has: file systems allow 255 for a name."""


@dataclass(frozen=True)
class Sweep:
    """The YAML's content, where it was read, and the ``key=value`` arguments of its launch.

    An argument overrides every trial; ``key=[a,b]`` for a swept key leaves those of its values.
    """

    source: Path
    config: dict[str, Any]
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return re.sub(r"[^\w.-]+", "-", str(self.config.get("name") or self.source.stem))

    @property
    def method(self) -> str:
        return str(self.config.get("method"))

    @cached_property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """The parameters, by dotted key, after the launch's arguments: W&B's engine drops or repeats nested ones."""
        specs = flat_parameters(self.config["parameters"])
        for argument in self.overrides:
            key, value = parse_argument(argument)
            if key in specs:
                specs[key] = {"values": value} if self.selects(argument) else {"value": value}
        return specs

    @cached_property
    def trial_arguments(self) -> list[str]:
        """The arguments of the launch that every trial is given besides its own values."""
        return [argument for argument in self.overrides if not self.selects(argument)]

    def selects(self, argument: str) -> bool:
        """Whether an argument of the launch keeps some of the values of a swept key, not one value.

        Raises UserError where it keeps a value that the YAML does not have, or none.
        """
        key, kept = parse_argument(argument)
        spec = flat_parameters(self.config["parameters"]).get(key)
        values = spec.get("values") if isinstance(spec, dict) else None
        if (
            not isinstance(kept, list)
            or not isinstance(values, list)
            or any(isinstance(value, list) for value in values)
        ):
            return False
        unknown = [value for value in kept if value not in values]
        if unknown or not kept:
            what = f"{unknown[0]} is not among" if unknown else "leaves none of"
            raise UserError(f"{argument}: {what} the values {self.source} has for {key}: {', '.join(map(str, values))}")
        return True

    @property
    def command(self) -> list[str]:
        return [str(part) for part in self.config["command"]]

    @property
    def run_cap(self) -> int | None:
        return self.config.get("run_cap")

    @property
    def metric(self) -> str | None:
        return (self.config.get("metric") or {}).get("name")

    @property
    def maximises(self) -> bool:
        return bool((self.config.get("metric") or {}).get("goal") == "maximize")

    @property
    def stops_early(self) -> bool:
        return "early_terminate" in self.config

    @property
    def deciding_overrides(self) -> list[str]:
        """The arguments that decide the trials: all but ``output.dir``, which says where their files go."""
        return [argument for argument in self.overrides if not argument.startswith("output.dir=")]

    @property
    def identifier(self) -> str:
        """Name and hash of what decides the trials: the YAML, the arguments and the chosen-values files they name."""
        arguments = self.deciding_overrides
        content = [self.config, arguments, [file_text(chosen_file(Path(path))) for path in self._chosen_files()]]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:8]
        return f"{self.name.encode()[:LONGEST_NAME].decode(errors='ignore')}-{digest}"

    @property
    def output(self) -> Path:
        """``output.dir`` as the overrides, the parameters or the command give it."""
        return Path((self.given("output.dir") or [OutputConfig().dir])[-1])

    @property
    def directory(self) -> Path:
        return self.output / "sweeps" / self.identifier

    def write_copy(self, directory: Path) -> None:
        """Keep the YAML, comments included, and the arguments of the launch."""
        if (directory / OVERRIDES_COPY).exists():
            return
        content = file_text(self.source) or yaml.safe_dump(self.config, sort_keys=False)
        with writing(f"output.dir={self.output}"):
            directory.mkdir(parents=True, exist_ok=True)
            write_atomically(directory / YAML_COPY, content)
            # last, for it tells that this is the directory of a sweep
            write_atomically(directory / OVERRIDES_COPY, json.dumps(self.overrides))

    def _chosen_files(self) -> list[str]:
        return sorted(set(self.given("chosen")))

    def given(self, key: str) -> list[str]:
        """Every value a key is given, the one that counts last."""
        spec = self.parameters.get(key) or {}
        swept = spec.get("values", [spec["value"]] if "value" in spec else [])
        arguments = [*self.command, *(f"{key}={value}" for value in swept), *self.trial_arguments]
        return [text.partition("=")[2] for text in arguments if text.lstrip("-").startswith(f"{key}=")]


def flat_parameters(parameters: dict[str, Any], prefix: str = "") -> dict[str, dict[str, Any]]:
    """Nested parameters by dotted key."""
    flat: dict[str, dict[str, Any]] = {}
    for name, spec in parameters.items():
        if isinstance(spec, dict) and isinstance(spec.get("parameters"), dict):
            flat |= flat_parameters(spec["parameters"], f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = spec
    return flat


def file_text(path: Path) -> str | None:
    """The text of a file, or None where it cannot be read."""
    try:
        return read_regular(path)
    except OSError:
        return None


def read_sweep(path: Path, overrides: list[str] | None = None) -> Sweep:
    """Read a sweep YAML, or a packaged one by its name, with the arguments of this launch.

    The module ``check`` validates its content. Raises UserError for a file that does not have the shape of a sweep, and
    for arguments that do not fit it.
    """
    path = sweep_file(path)
    return _checked(path, with_defaults(read_yaml(path, str(path))), overrides)


def make_sweep(config: dict[str, Any], overrides: list[str] | None = None) -> Sweep:
    """A sweep from the content of a YAML; raises UserError as ``read_sweep`` does."""
    return _checked(Path(str(config.get("name") or "sweep")), with_defaults(config), overrides)


def with_defaults(config: dict[Any, Any]) -> dict[Any, Any]:
    """The content of a sweep YAML with what it may leave out: ``method`` is grid, ``command`` is ``COMMAND``."""
    return {"method": "grid", "command": list(COMMAND), **config}


def _checked(path: Path, config: dict[Any, Any], overrides: list[str] | None) -> Sweep:
    for key, kind, wanted in (
        ("method", str, f"one of {', '.join(METHODS)}"),
        ("parameters", dict, "keys with values"),
        ("command", list, f"a list that calls `fl_platform run`, or left out, which means {json.dumps(COMMAND)}"),
    ):
        if not isinstance(config.get(key), kind):
            raise UserError(f"{path}: {key}={config.get(key)} is not allowed; it must be {wanted}")
    cap, metric = config.get("run_cap"), config.get("metric")
    if cap is not None and (type(cap) is not int or cap < 1):
        raise UserError(f"{path}: run_cap={cap} is not allowed; it must be a whole number >= 1")
    if metric is not None and not (isinstance(metric, dict) and isinstance(metric.get("name"), str | None)):
        raise UserError(f"{path}: metric={metric} is not allowed; it must have name: and goal:")
    for key in all_keys(config):
        if not isinstance(key, str):
            raise UserError(f"{path}: the key {key} is not text; put it in quotes if it is meant to be")
    sweep = Sweep(path, config, tuple(overrides or []))
    for argument in sweep.overrides:
        sweep.selects(argument)
    return sweep


def all_keys(value: Any) -> Iterator[Any]:
    """The keys of nested mappings and lists."""
    if isinstance(value, dict):
        yield from value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from all_keys(part)


def find_sweep(target: Path, overrides: list[str] | None = None) -> tuple[Sweep, Path]:
    """Return the sweep and its directory, given that directory or the YAML and arguments of its launch.

    Raises UserError for a sweep that was never launched and for a directory that is not one of a sweep.
    """
    if not target.is_dir():
        sweep = read_sweep(target, overrides)
        if not sweep.directory.is_dir():
            raise UserError(
                f"{target}: never launched with these arguments: there is no {sweep.directory}; `sweep run` starts it"
            )
        return sweep, sweep.directory
    if overrides:
        raise UserError(
            f"{overrides[0]} cannot be given with the directory {target}: its arguments are those of its launch"
        )
    if not (target / OVERRIDES_COPY).is_file():
        inside = [str(directory) for directory in sweep_directories(target)]
        there = f"; it holds sweeps, give one of {', '.join(inside)}" if inside else ""
        raise UserError(f"{target} is not a sweep directory: it has no {OVERRIDES_COPY}{there}")
    return read_sweep(target / YAML_COPY, saved_arguments(target / OVERRIDES_COPY)), target


def sweep_directories(target: Path) -> list[Path]:
    """The directories of sweeps in a directory or in its ``sweeps``, where a sweep's output.dir has them; sorted."""
    found = [path.parent for pattern in ("*", "sweeps/*") for path in target.glob(f"{pattern}/{OVERRIDES_COPY}")]
    return sorted(found)


def saved_arguments(path: Path) -> list[str]:
    """The arguments of a launch as ``write_copy`` kept them; UserError for a damaged file."""
    try:
        saved = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        saved = None
    if not isinstance(saved, list) or not all(isinstance(argument, str) for argument in saved):
        raise UserError(f"{path} is damaged: it must hold a list of the arguments of the launch, such as []")
    return saved
