"""What a configuration may name: algorithms, data sets, models and memory policies, each registered by its own module.

The registries know the built-in packages only by name, so that the configuration does not depend on what it
configures. ``describe`` says what a configuration needs to know about a name without importing torch; ``get`` imports
what the name stands for. Plugins register in the same way by being imported.
"""

import importlib
import pkgutil
import sys
import threading
from functools import cache
from typing import Any, Generic, TypeVar

from fl_platform.config import catalogue
from fl_platform.config.descriptions import Description, NotPlain, to_json
from fl_platform.errors import UserError, unknown_name

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Names of one kind, such as the values of ``algorithm.name``, and what they stand for."""

    def __init__(self, key: str, package: str) -> None:
        """``key`` is the configuration key that holds a name; the modules of ``package`` register the built-in ones."""
        self.key, self._package = key, package
        self._entries: dict[str, Entry] = {}
        self._modules: dict[str, str] = {}
        self._definitions: dict[str, tuple[str, str] | None] = {}
        self._descriptions: dict[str, tuple[Entry | None, Description]] = {}

    def add(self, name: str, entry: Entry, definition: Any = None) -> None:
        """Register ``entry``, which the class or function ``definition`` defines; UserError for a name that is taken.

        Executing a definition again, as in a cell of a notebook or by ``importlib.reload``, replaces the earlier one.
        """
        module = _registering_module()
        if not _is_built_in(module):
            self.load()  # a plugin must not take the name of something built-in that is not imported yet
        place = _place(definition)
        if name in self._entries and (place is None or place != self._definitions[name]):
            raise UserError(f"{self.key}={name} is registered already; choose another name")
        self._entries[name], self._modules[name], self._definitions[name] = entry, module, place

    def get(self, name: str) -> Entry:
        """Import and return what ``name`` stands for; UserError, with the nearest name, where nothing is registered."""
        if name not in self._entries and name in (known := self._known()):
            importlib.import_module(known[name]["module"])
        if name not in self._entries:
            raise unknown_name(self.key, name, self.names())
        return self._entries[name]

    def describe(self, name: str) -> Description:
        """Return what a configuration needs to know about ``name``, without importing it; UserError as ``get``."""
        entry = self._entries.get(name)
        if name not in self._descriptions or self._descriptions[name][0] is not entry:
            if entry is None and name in (known := self._known()):
                found = Description.from_json(known[name], lambda: self.get(name))
            else:
                found = Description.of(self.get(name))
            self._descriptions[name] = self._entries.get(name), found
        return self._descriptions[name][1]

    def names(self) -> list[str]:
        """Return all names in alphabetical order."""
        return sorted({*self._known(), *self._entries})

    def is_of_this_process(self, name: str) -> bool:
        """Whether ``name`` was registered by a script or notebook, which no other process can import."""
        return name in self._entries and self._modules[name] == "__main__"

    def items(self) -> list[tuple[str, Entry]]:
        """Import everything; returns (name, entry) pairs in the order of ``names``."""
        self.load()
        return sorted(self._entries.items(), key=lambda item: item[0])

    def load(self) -> None:
        """Import the built-in package and every module in it."""
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
            importlib.import_module(f"{self._package}.{module.name}")

    def built_in(self) -> dict[str, dict[str, Any]]:
        """Import everything; returns the descriptions of what is built in, for the catalogue. Raises NotPlain."""
        modules = self._modules
        return {name: to_json(entry, modules[name]) for name, entry in self.items() if _is_built_in(modules[name])}

    def __contains__(self, name: str) -> bool:
        return name in self._entries or name in self._known()

    def _known(self) -> dict[str, dict[str, Any]]:
        """The descriptions of the catalogue; none where everything is imported instead."""
        if self not in REGISTRIES:
            self.load()
        return _catalogue().get(self.key, {})


_MAKING = threading.RLock()


def _catalogue() -> catalogue.Catalogue:
    """The catalogue of these sources, made once: a second thread would see packages that are imported in part."""
    with _MAKING:
        return _made_catalogue()


@cache
def _made_catalogue() -> catalogue.Catalogue:
    """The catalogue that is kept; where there is none yet, everything is imported and it is written."""
    kept = catalogue.read()
    if kept is None or not all(kept.get(registry.key) for registry in REGISTRIES):
        for registry in REGISTRIES:
            registry.load()
        try:
            kept = {registry.key: registry.built_in() for registry in REGISTRIES}
            catalogue.write(kept)
        except NotPlain:  # every process imports everything, as this one did
            return {}
    return kept


def _registering_module() -> str:
    """The module whose top level is being executed, which is the one that registers something."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back  # type: ignore[assignment]
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def _place(definition: Any) -> tuple[str, str] | None:
    """Where a class or function is defined at the top level of a module, as (module, name); None for any other."""
    name = getattr(definition, "__qualname__", "<locals>")
    return None if "<locals>" in name else (definition.__module__, name)


def _is_built_in(module: str) -> bool:
    return module.startswith(f"{__name__.partition('.')[0]}.")


ALGORITHMS: Registry[Any] = Registry("algorithm.name", "fl_platform.algorithms")
DATASETS: Registry[Any] = Registry("data.name", "fl_platform.data.sets")
MODELS: Registry[Any] = Registry("model.name", "fl_platform.models")
POLICIES: Registry[Any] = Registry("algorithm.memory_policy", "fl_platform.algorithms.policies")
PARTITIONS: Registry[Any] = Registry("data.partition", "fl_platform.data.partitions")
REGISTRIES: tuple[Registry[Any], ...] = (ALGORITHMS, DATASETS, MODELS, POLICIES, PARTITIONS)


def check_model_name(name: str) -> None:
    """Raise UserError unless the name is registered or could be a dotted path."""
    if name not in MODELS and not ("." in name and all(part.isidentifier() for part in name.split("."))):
        raise unknown_name(MODELS.key, name, MODELS.names())
