"""Runs code of ours around the import of one module of another package."""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, NamedTuple

Execute = Callable[[ModuleType], None]


def intercept(name: str, around: Callable[[Execute, ModuleType], None]) -> None:
    """Have ``around(execute, module)`` import a module, with the function that runs its real code.

    A second call for the same module does nothing.
    """
    finder = _Finder(name, around)
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


class _Loader:
    """Hands the real loader's work to ``around``, and leaves no other trace in the module."""

    def __init__(self, real: Any, around: Callable[[Execute, ModuleType], None]) -> None:
        self.real, self.around = real, around

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self.real.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self.real
        self.around(self.real.exec_module, module)


class _Finder(NamedTuple):
    """Finds one module where Python would, and nothing else."""

    name: str
    around: Callable[[Execute, ModuleType], None]

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.around)  # type: ignore[assignment]
        return spec
