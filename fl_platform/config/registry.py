"""What a configuration may name: algorithms, data sets, models and memory policies, each registered by its own module.

The registries know the built-in packages only by name and import them at the first lookup, so that the configuration
does not depend on what it configures. Plugins register in the same way by being imported.
"""

import importlib
from typing import Any, Generic, TypeVar

from fl_platform.errors import UserError, unknown_name

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Names of one kind, such as the values of ``algorithm.name``, and what they stand for."""

    def __init__(self, key: str, package: str) -> None:
        """``key`` is the configuration key that holds a name; importing ``package`` registers the built-in ones."""
        self.key, self._package = key, package
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, entry: Entry) -> None:
        """Register ``entry``; UserError for a name that is taken."""
        if name in self._entries:
            raise UserError(f"{self.key}={name} is registered already; choose another name")
        self._entries[name] = entry

    def get(self, name: str) -> Entry:
        """Return what ``name`` stands for; UserError, with the nearest name, where nothing is registered."""
        if name not in self:
            raise unknown_name(self.key, name, self._entries)
        return self._entries[name]

    def names(self) -> list[str]:
        """Return all names in alphabetical order."""
        importlib.import_module(self._package)
        return sorted(self._entries)

    def items(self) -> list[tuple[str, Entry]]:
        """Return (name, entry) pairs in the order of ``names``."""
        return [(name, self._entries[name]) for name in self.names()]

    def __contains__(self, name: str) -> bool:
        importlib.import_module(self._package)
        return name in self._entries


ALGORITHMS: Registry[Any] = Registry("algorithm.name", "fl_platform.algorithms")
DATASETS: Registry[Any] = Registry("data.name", "fl_platform.data.datasets")
MODELS: Registry[Any] = Registry("model.name", "fl_platform.models")
POLICIES: Registry[Any] = Registry("algorithm.memory_policy", "fl_platform.algorithms.policies")


def check_model_name(name: str) -> None:
    """Raise UserError unless the name is registered or could be a dotted path."""
    if name not in MODELS and not ("." in name and all(part.isidentifier() for part in name.split("."))):
        raise unknown_name(MODELS.key, name, MODELS.names())
