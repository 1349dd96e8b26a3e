"""Sources of keys laid over the defaults, into one typed Config.

OmegaConf converts and checks each value by the schema, which takes milliseconds for a whole configuration: a sweep of
many trials would spend all its time there. So a value is converted once, the result is kept, and a configuration is a
copy of the default one with such values set. Where keys of open groups contradict each other (`algorithm.qp=1` and
`algorithm.qp.solver=exact`), OmegaConf merges everything as it always does, and says what is wrong.
"""

import copy
import dataclasses
from collections.abc import Iterable
from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fl_platform.config.given import Given
from fl_platform.config.schema import OPEN_GROUPS, SCALARS, Config, flatten, known_keys, shown
from fl_platform.config.typed import of_type
from fl_platform.errors import UserError

Values = list[tuple[str, Any]]
"""Dotted keys and their values, from weakest to strongest."""


def merge(sources: Iterable[Given]) -> Config:
    """Return the configuration of several sources, from weakest to strongest; UserError for a value of a wrong type."""
    values = [pair for source in sources for pair in flatten(source)]
    return merged_quickly(values) or merged_by_omegaconf(values)


def merged_by_omegaconf(values: Values) -> Config:
    """The plain way: the schema's own config, key after key."""
    merged = OmegaConf.structured(Config)
    for name, value in values:
        put_one(merged, name, value)
    config = OmegaConf.to_object(merged)
    assert isinstance(config, Config)
    return config


def merged_quickly(values: Values) -> Config | None:
    """The same from values that are converted one by one; None where keys cannot be set independently of each other."""
    config: Config = duplicate(_default_config())
    for name, value in values:
        if name not in known_keys() or name in OPEN_GROUPS:
            if not put_open(config, name, value):
                return None
            continue
        *groups, last = name.split(".")
        place: Any = config
        for group in groups:
            place = getattr(place, group)
        setattr(place, last, of_type(name, value, known_keys()[name]))
    return config


def put_open(config: Config, name: str, value: Any) -> bool:
    """Set a key of an open group; returns False where it is not one, or meets a value where it needs a mapping."""
    found = next((group for group in OPEN_GROUPS if name.startswith(f"{group}.")), None)
    if found is None:
        return False
    place: Any = config
    for part in found.split("."):
        place = getattr(place, part)
    *groups, last = name.removeprefix(f"{found}.").split(".")
    for group in groups:
        place = place.setdefault(group, {})
        if not isinstance(place, dict):
            return False
    if isinstance(value, dict) or isinstance(place.get(last), dict):
        return False
    place[last] = copy.deepcopy(value)
    return True


def duplicate(config: Any) -> Any:
    """A copy of a configuration whose groups, lists and mappings are its own."""
    if dataclasses.is_dataclass(config):
        made = copy.copy(config)
        for name, value in vars(config).items():
            if not isinstance(value, SCALARS):
                setattr(made, name, duplicate(value))
        return made
    return copy.deepcopy(config)


@cache
def _default_config() -> Config:
    return merged_by_omegaconf([])


def put_one(merged: DictConfig, name: str, value: Any) -> None:
    """Set one key; UserError where the schema has another type for it."""
    try:
        OmegaConf.update(merged, name, value, force_add=name.startswith(OPEN_GROUPS))
    except (OmegaConfBaseException, ValueError, TypeError, OverflowError):
        option = known_keys().get(name)
        expected = str(getattr(option.type, "__name__", option.type)) if option else "a group of keys"
        raise UserError(f"{name}={shown(value)} has the wrong type; expected {expected}") from None
