"""From ``key=value`` arguments, files and presets to a checked Config: what is not known is refused."""

import copy
import inspect
import io
import re
import shlex
import sys
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fl_platform.config.given import Given, lay_over, put_nested, select
from fl_platform.config.merge import merge
from fl_platform.config.migrate import MOVED
from fl_platform.config.options import check
from fl_platform.config.presets import preset_values
from fl_platform.config.regular_files import refuse_pipe
from fl_platform.config.schema import OPEN_GROUPS, Config, flatten, known_keys, shown
from fl_platform.config.targets import plain_target
from fl_platform.config.yaml_limits import LONGEST_YAML, check_size
from fl_platform.errors import UserError, did_you_mean
from fl_platform.paper.packaged import chosen_file
from fl_platform.paper.scenarios import scenario_values

LONGEST_TAG = 64
"""Characters of a W&B tag."""


@lru_cache(maxsize=1024)
def check_key(key: str) -> None:
    """Raise UserError unless ``key`` is an option, a group, or lies in an open group."""
    keys = known_keys()
    if key in keys or any(name.startswith(key + ".") for name in keys):
        return
    if any(re.fullmatch(rf"{re.escape(name)}(\.[^.\[\]]+)+", key) for name in OPEN_GROUPS):
        return
    if key in MOVED:
        raise UserError(f"unknown key '{key}'; it is now {MOVED[key]}")
    if moved := [new for old, new in MOVED.items() if old.startswith(f"{key}.")]:
        raise UserError(f"unknown key '{key}'; its keys are now {', '.join(moved)}")
    if meant := synonyms().get(key.lower().replace("-", "_")):
        raise UserError(f"unknown key '{key}'; it is called {meant} here")
    raise UserError(
        f"unknown key '{key}'{did_you_mean(key, keys) or '; `python -m fl_platform config` prints all keys'}"
    )


@cache
def synonyms() -> dict[str, str]:
    """Words that a person may type for a key -> the key."""
    text = resources.files("fl_platform.config").joinpath("synonyms.yaml").read_text(encoding="utf-8")
    found: dict[str, str] = yaml.safe_load(text)
    return found


def parse_arguments(arguments: list[str]) -> Given:
    """Return ``key=value`` arguments, values in YAML, as nested keys."""
    given: Given = {}
    for argument in arguments:
        name, value = parse_argument(argument)
        put(given, {name: value})
    return given


def parse_argument(argument: str) -> tuple[str, Any]:
    """Return the key and the value of one; UserError for a key that does not exist."""
    name, equals, text = argument.partition("=")
    name = name.lstrip("-")  # wandb's ${args} writes --key=value
    if not equals or not name:
        raise UserError(f"'{argument}' is not of the form key=value")
    check_key(name)
    try:
        check_size(text)
        value = copy.deepcopy(_value(text))
    except (OmegaConfBaseException, yaml.YAMLError, ValueError, RecursionError):
        raise UserError(f"{name}={text} cannot be read: the value is not valid YAML") from None
    option = known_keys().get(name)
    is_text = option is not None and option.type in (str, str | None)
    return name, text if is_text and isinstance(value, bool | int | float) else value  # YAML calls the word on true


@lru_cache(maxsize=1024)
def _value(text: str) -> Any:
    """What YAML reads in a text; the trials of a sweep repeat the same few."""
    return OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))["value"]  # type: ignore[index, call-overload]


_LIMIT = "max_yaml_expanded_nodes"  # OmegaConf's own, from 2.4 on; ``check_size`` has the documented one
_WITHOUT_LIMIT: dict[str, Any] = {_LIMIT: None} if _LIMIT in inspect.signature(OmegaConf.load).parameters else {}


def parse_file(path: Path) -> Given:
    """A YAML file of the same keys."""
    return parse_mapping(read_yaml(path, f"--config {path}"), f"--config {path}")


def read_yaml(path: Path, source: str) -> dict[Any, Any]:
    """The mapping a YAML file holds; ``source`` names it in messages."""
    try:
        refuse_pipe(path)
        with open(path, encoding="utf-8") as file:
            text = file.read(LONGEST_YAML + 1)
        check_size(text)
        # unlike PyYAML alone, this reads 1e-3 and refuses a key given twice
        loaded = OmegaConf.to_container(OmegaConf.load(io.StringIO(text), **_WITHOUT_LIMIT))
    except FileNotFoundError:
        raise UserError(f"{source}: no such file") from None
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException, RecursionError) as error:
        raise UserError(f"{source} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(loaded, dict):
        raise UserError(f"{source} holds a list, not keys and values")
    return loaded


def parse_mapping(values: dict[Any, Any], source: str) -> Given:
    """Nested or dotted keys from a file, a checkpoint or a sweep, checked against the known ones."""
    given: Given = {}
    try:
        put(given, values)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    return given


def put(given: Given, values: dict[Any, Any]) -> None:
    """Set keys that exist to values that are plain."""
    options, seen = known_keys(), set()
    for name, value in flatten(values):
        check_key(name)
        check_plain(name, value)
        if name in seen:
            raise UserError(f"{name}={value} is given twice; give it once")
        seen.add(name)
        if (name not in options or name in OPEN_GROUPS) and not isinstance(value, dict) and not below_open_group(name):
            hint = f"; did you mean {name}.name={value}?" if isinstance(value, str) else ""
            raise UserError(f"{name}={shown(value)} has the wrong type; {name} is a group of keys{hint}")
        if not put_nested(given, name, value):
            raise UserError(f"{name}={shown(value)} does not go with the {name} given before it; give it once")


def below_open_group(name: str) -> bool:
    """Whether a key lies in a group whose names are not fixed, such as ``trainer.*``."""
    return name.startswith(tuple(f"{group}." for group in OPEN_GROUPS))


def check_plain(name: str, value: Any) -> None:
    """Refuse what OmegaConf would evaluate, and what JSON cannot hold: a configuration says everything itself."""
    if not isinstance(value, str | int | float | list | dict | None):
        raise UserError(f"{name}={value} is a {type(value).__name__}; write a number, a word, true, false or null")
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        raise UserError(f"{name}={value} is not allowed: keys are words")
    for item in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        check_plain(name, item)
    if isinstance(value, str) and "\0" in value:
        raise UserError(f"{name}={value} is not allowed: it holds a NUL character")
    if isinstance(value, str) and ("${" in value or value == "???"):
        raise UserError(f"{name}={value} is not allowed: nothing is looked up or left out; write the value itself")


def compose(arguments: list[str], files: list[Path] | None = None) -> Config:
    """Return the configuration of ``key=value`` arguments and YAML files, with types and bounds checked.

    From weakest to strongest: defaults, preset, scenario, chosen, point, files in order, arguments. The fields of the
    algorithm are checked by ``resolve``.
    """
    if not files:
        return from_given(parse_arguments(arguments))
    given: Given = {}
    for source in (*map(parse_file, files), parse_arguments(arguments)):
        lay_over(given, source)
    return from_given(given)


def from_given(given: Given) -> Config:
    """A checked Config from explicitly given keys; preset, scenario, chosen and point fill what they leave open."""

    def selected(key: str, default: str | None = None) -> str | None:
        value = given.get(key)
        return default if value is None else str(value)

    sources = [point_values(selected("point") or ""), given]
    algorithm = next(
        (str(name) for source in reversed(sources) if (name := select(source, "algorithm.name"))), "fedavg"
    )
    scenario = selected("scenario")
    if chosen := selected("chosen"):
        sources.insert(0, chosen_values(Path(chosen), algorithm, scenario))
    if scenario:
        sources.insert(0, _scenario(scenario))
    sources.insert(0, _preset(selected("preset", "paper") or ""))
    config = merge(sources)
    if config.local_epochs is not None and not any("local_steps" in source for source in sources):
        config.local_steps = None  # the default gives way
    if config.evaluation.targets is not None:
        config.evaluation.targets = [plain_target(target) for target in config.evaluation.targets]
    check(config)
    check_combinations(config)
    return config


@cache
def _scenario(name: str) -> Given:
    return parse_mapping(scenario_values(name), f"scenario={name}")


@cache
def _preset(name: str) -> Given:
    return parse_mapping(preset_values(name, known_keys().items()), "preset")


def point_values(point: str) -> Given:
    """The keys of a point, ``key=value`` separated by spaces; UserError for what cannot be read or names files."""
    try:
        return refuse_sources(parse_arguments(shlex.split(point)), f"point={point}")
    except ValueError as error:
        raise error if isinstance(error, UserError) else UserError(f"point={point} cannot be read: {error}") from None


def refuse_sources(values: Given, source: str) -> Given:
    """What says where values come from must be given itself: it has been read by now."""
    for key in ("preset", "scenario", "chosen", "point"):
        if key in values:
            raise UserError(f"{source}: {key}={values[key]} has no effect in there; give it as a key of its own")
    return values


NO_SCENARIO = "none"
"""What a chosen-values file calls runs without a scenario."""


def chosen_values(path: Path, algorithm: str, scenario: str | None) -> Given:
    """The keys a chosen-values file holds for (algorithm, scenario); none, said aloud, where it has no entry."""
    path = chosen_file(path)
    if not path.exists():
        print(f"chosen={path} does not exist: defaults are used; `sweep best` writes such a file", file=sys.stderr)
        return {}
    status = path.stat()
    entry: Any = _chosen_entries(path, status.st_size, status.st_mtime_ns)
    if isinstance(entry, dict) and isinstance(entry.get(scenario), str):
        scenario = entry[scenario]  # not tuned itself: it takes the choice of another
    for level in (scenario or NO_SCENARIO, algorithm, "keys"):
        entry = entry.get(level) if isinstance(entry, dict) else None
    if not isinstance(entry, dict):
        where = f"in {scenario}" if scenario else "without a scenario"
        print(f"chosen={path} has nothing for {algorithm} {where}: defaults are used", file=sys.stderr)
        return {}
    return refuse_sources(parse_mapping(entry, f"chosen={path}"), f"chosen={path}")


@lru_cache(maxsize=4)
def _chosen_entries(path: Path, size: int, changed: int) -> Any:
    """What a chosen-values file of this size and time holds; a sweep reads the same file for every trial."""
    return read_yaml(path, f"chosen={path}").get("chosen")


def check_combinations(config: Config) -> None:
    """What no single key can say: keys that contradict each other."""
    for tag in config.tracking.tags:
        if not 1 <= len(tag) <= LONGEST_TAG:
            tags = config.tracking.tags
            raise UserError(f"tracking.tags={tags}: W&B refuses '{tag}'; a tag has 1 to {LONGEST_TAG} characters")
    check_cohort(config)
    if (config.local_steps is None) == (config.local_epochs is None):
        raise UserError(
            f"local_steps={shown(config.local_steps)} with local_epochs={shown(config.local_epochs)}: "
            "give one of them and leave the other null"
        )
    if config.batch_size == 1 and config.model.norm == "batch":
        raise UserError(
            "batch_size=1 with model.norm=batch: BatchNorm needs at least 2 samples; "
            "use batch_size>=2 or model.norm=group | none"
        )
    if not isinstance(config.algorithm.get("name"), str):
        raise UserError(
            f"algorithm.name={config.algorithm.get('name')} is not a name; see `python -m fl_platform list algorithms`"
        )


def check_cohort(config: Config) -> None:
    """Raise UserError for a cohort of more workers than there are, where that number is known."""
    if config.num_workers is not None and config.cohort_size > config.num_workers:
        raise UserError(
            f"cohort_size={config.cohort_size} exceeds num_workers={config.num_workers}; "
            "a cohort has at most all workers"
        )
