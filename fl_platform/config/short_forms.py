"""Configuration keys as a person gives them in Python: keyword arguments, dotted or nested mappings, short forms."""

import json
import os
from collections.abc import Mapping
from typing import Any

import yaml

from fl_platform.config.schema import flatten
from fl_platform.errors import UserError

NAMED = {"data": "data.name", "algorithm": "algorithm.name", "model": "model.name"}
"""Groups that stand for their name when a text is given for them."""
SHORT = {"omega": "data.dirichlet_omega"}


def keys_of(config: Mapping[str, Any] | None, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given by dotted key; keyword arguments come last and win.

    Paths become text, tuples lists, and NumPy's numbers Python's. Raises UserError for a ``config`` that is no mapping
    and for a key that one of the two gives twice, as ``data="mnist"`` with ``data={"name": ...}`` would.
    """
    if config is not None and not isinstance(config, Mapping):
        raise UserError(f"run: {config!r} is not a mapping of configuration keys; give keys as keyword arguments")
    found: dict[str, Any] = {}
    for given in (config or {}, keys):
        flat = flatten({name: plain(value) for name, value in given.items()})
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
