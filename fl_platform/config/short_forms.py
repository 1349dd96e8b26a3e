"""Configuration keys as a person gives them in Python: keyword arguments, dotted or nested mappings, short forms."""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import yaml

from fl_platform.config.options import default_of
from fl_platform.config.registry import ALGORITHMS, DATASETS, Registry
from fl_platform.config.schema import flatten
from fl_platform.errors import UserError

NAMED = {"data": "data.name", "algorithm": "algorithm.name", "model": "model.name"}
"""Groups that stand for their name when a text is given for them."""
SHORT = {"omega": "data.dirichlet_omega"}
_REGISTRIES: dict[str, Registry[Any]] = {"data": DATASETS, "algorithm": ALGORITHMS}


def keys_of(config: Mapping[str, Any] | None, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given by dotted key; keyword arguments come last and win.

    Paths become text, tuples lists, NumPy's numbers Python's; a class given for ``data``, ``algorithm`` or ``model``
    becomes its name, an algorithm its name and fields. Raises UserError for a ``config`` that is no mapping, for a
    class without a name, and for a key that one of the two gives twice, as ``data="mnist"`` with ``data={"name": ...}``
    would.
    """
    if config is not None and not isinstance(config, Mapping):
        raise UserError(f"run: {config!r} is not a mapping of configuration keys; give keys as keyword arguments")
    found: dict[str, Any] = {}
    for given in (config or {}, keys):
        flat = flatten({name: plain(named(name, value) if name in NAMED else value) for name, value in given.items()})
        own: dict[str, Any] = {}
        for name, value in flat:
            key = SHORT.get(name, NAMED.get(name, name) if isinstance(value, str) else name)
            if key in own:
                raise UserError(f"run: {key} is given twice, as {own[key]} and as {value}; give it once")
            own[key] = value
        found |= own
    return found


def assignment(key: str, value: Any) -> str:
    """Return ``key=value`` as the command line has it, the value in YAML on one line."""
    return f"{key}={json.dumps(value)}" if not isinstance(value, str) or _is_read_otherwise(value) else f"{key}={value}"


def _is_read_otherwise(text: str) -> bool:
    """Whether YAML would read a plain text as something else, such as a number."""
    try:
        return bool(yaml.safe_load(text) != text)
    except yaml.YAMLError:
        return True


def plain(value: Any) -> Any:
    """Return a value as YAML would hold it; what is no such value is returned as it is, for the checks to refuse."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return value.item()
    return value


def named(group: str, value: Any) -> Any:
    """Return the keys that a class stands for, or an algorithm with its fields; any other value as it is.

    Raises UserError for a class of which a configuration can have no name.
    """
    kind = value if isinstance(value, type) else type(value)
    if group == "model" and hasattr(value, "forward") and kind is not value:
        raise UserError(
            f"model is a {kind.__name__} that is built already; give the class, its arguments as model.options"
        )
    if group == "model" and kind is value:
        if "<locals>" in kind.__qualname__:
            raise UserError(f"model={kind.__name__} is defined in a function; define the class outside of it")
        return f"{kind.__module__}.{kind.__qualname__}"
    name = getattr(kind, "name", None)
    if group not in _REGISTRIES or not isinstance(name, str):
        return value
    entry = _REGISTRIES[group].get(name)
    if kind not in (entry, type(entry)):  # a class without a name of its own has that of the class it extends
        raise UserError(
            f"{group}={kind.__name__} has no name of its own; "
            f'write class {kind.__name__}(..., name="{kind.__name__.lower()}")'
        )
    fields = changed_fields(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else {}
    return {"name": name, **fields}


def changed_fields(options: Any) -> dict[str, Any]:
    """Return the arguments of a dataclass, and of dataclasses in it, that are not at their defaults."""
    given = [(field, getattr(options, field.name)) for field in dataclasses.fields(options) if field.init]
    changed = {field.name: value for field, value in given if value != default_of(field)}
    return {
        name: changed_fields(value) if dataclasses.is_dataclass(value) else value for name, value in changed.items()
    }
