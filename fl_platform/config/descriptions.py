"""What a configuration needs to know about a registered name, without importing what the name stands for.

Algorithms, data sets and models import torch; their names, options and defaults do not need it. ``to_json`` writes
them down, ``Description.from_json`` reads them back.
"""

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from fl_platform.config.options import default_of, walk
from fl_platform.config.rules import Rules

_RULES = ("open_values", "check")
_GENERIC = (list[bool], list[int], list[float], list[str], dict[str, Any])
TYPES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (bool, int, float, str)},
    **{str(kind): kind for kind in _GENERIC},
    **{str(kind | None): kind | None for kind in (bool, int, float, str, *_GENERIC)},
}
"""The types that an option may have in a description, by their text."""


class NotPlain(ValueError):
    """An option that JSON cannot hold."""


class Description:
    """The options of a registered name, the first line of its docstring, and its plain attributes.

    Any other attribute is that of the entry itself, which is imported for it.
    """

    def __init__(
        self,
        load: Callable[[], Any],
        summary: str,
        options: Mapping[str, "dataclasses.Field[Any]"],
        values: Mapping[str, Any] | None = None,
        rules: Mapping[str, str] | None = None,
    ) -> None:
        """``load`` returns the entry; ``options`` are fields by dotted name; ``rules`` say which class has a rule."""
        self._load, self.summary, self.options = load, summary, options
        self._values, self._rules = values or {}, rules or {}

    @classmethod
    def of(cls, entry: Any) -> "Description":
        """Describe an entry that is imported."""
        return cls(lambda: entry, summary_of(entry), dict(walk(entry)) if _has_options(entry) else {})

    @classmethod
    def from_json(cls, content: Mapping[str, Any], load: Callable[[], Any]) -> "Description":
        """Read what ``to_json`` wrote."""
        options = {key: _field(key, option) for key, option in content["options"].items()}
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in content["values"].items()}
        return cls(load, content["summary"], options, values, content["rules"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._values:
            return self._values[name]
        if name in self._rules:
            module, owner = self._rules[name].split(":")
            return getattr(getattr(importlib.import_module(module), owner), name)
        return getattr(self._load(), name)


def to_json(entry: Any, module: str) -> dict[str, Any]:
    """Return the description of a class or object that ``module`` registers; NotPlain where JSON cannot hold it."""
    is_class = isinstance(entry, type)
    names = [name for name in dir(entry) if not name.startswith("_")]
    attributes = {name: inspect.getattr_static(entry, name) for name in names}
    return {
        "module": module,
        "summary": summary_of(entry),
        "values": {name: value for name, value in attributes.items() if _is_plain(value)},
        "options": {key: _option(field) for key, field in walk(entry)} if _has_options(entry) else {},
        "rules": _rules(entry) if is_class else {},
    }


def summary_of(entry: Any) -> str:
    """The first line of an entry's docstring."""
    return (entry.__doc__ or "").strip().partition("\n")[0]


def _has_options(entry: Any) -> bool:
    return isinstance(entry, type) and dataclasses.is_dataclass(entry)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) and not isinstance(item, list | tuple) for item in value)
    return value is None or isinstance(value, bool | int | float | str)  # names of an enum are text


def _rules(entry: type[Any]) -> dict[str, str]:
    """Where to find each rule that the entry is not needed for, as ``module:Class``."""
    found = {}
    for name in _RULES:
        owners = [kind for kind in entry.__mro__ if name in vars(kind)]
        if not owners or owners[-1] is not Rules or len(owners) > 2:
            continue  # rules that call each other by super() need the whole class
        if set(owners[0].__mro__) <= {owners[0], Rules, object}:
            found[name] = f"{owners[0].__module__}:{owners[0].__qualname__}"
    return found


def _option(field: "dataclasses.Field[Any]") -> dict[str, Any]:
    """An option as JSON holds it; what it leaves open is left out."""
    kind = field.type.__name__ if field.type in (bool, int, float, str) else str(field.type)
    default = default_of(field)
    if TYPES.get(kind) != field.type or not (_is_plain(default) or default == {}):
        raise NotPlain(f"{field.name}: {field.type} = {default}")
    return {"type": kind, "default": default, "metadata": {k: v for k, v in field.metadata.items() if v is not None}}


def _field(key: str, option: dict[str, Any]) -> "dataclasses.Field[Any]":
    """The option that ``_option`` wrote, as a dataclass field."""
    default = option["default"]
    metadata = {name: tuple(v) if isinstance(v, list) else v for name, v in option["metadata"].items()}
    field: Any
    if isinstance(default, list | dict):
        field = dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    else:
        field = dataclasses.field(default=default, metadata=metadata)
    field.name, field.type = key.rpartition(".")[2], TYPES[option["type"]]
    return cast("dataclasses.Field[Any]", field)
