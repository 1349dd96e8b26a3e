"""Lets a command import Lightning without packages that a run does not use, until something of them is used.

Lightning and torchmetrics name torch's compiler, scipy, matplotlib and torchvision at module level: nine tenths of the
time that importing them takes, and 180 MB. The import of ``lightning`` is intercepted. While its real code runs, what
modules of these two import of such a package is a stand-in, which notes what is done with it, attributes and calls.
Afterwards its use imports the package and does the same with the real thing: a metric's ``plot`` in a callback of
one's own works as ever. All other modules, and every later import, get the packages themselves. Only commands do this:
``import fl_platform`` changes nothing of Lightning.
"""

import builtins
import contextlib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Union

from fl_platform._imports import Execute, intercept

IMPORTERS = ("lightning", "torchmetrics")
PACKAGES = ("matplotlib", "scipy", "torch._dynamo", "torchvision")
COMPILER = "torch._dynamo"

_is_noting = False


class Deferred:
    """Something of a package that is not imported yet; ``find`` imports the package and returns it."""

    def __init__(self, package: str, find: Callable[[], Any]) -> None:
        self._package, self._find = package, find

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # what Python looks for in any object
        if not _is_noting:
            return member(self._find(), name)
        return Deferred(self._package, lambda: member(self._find(), name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _is_noting:
            return self._find()(*args, **kwargs)
        return Deferred(self._package, lambda: self._find()(*args, **kwargs))

    def __instancecheck__(self, thing: Any) -> bool:
        """Whether a thing is of this class; nothing is while its package is not imported."""
        return self._package in sys.modules and isinstance(thing, self._find())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        """The class itself, for a class derived from it."""
        return (self._find(),)

    def __or__(self, other: Any) -> Any:
        """A type ``Class | other``."""
        return Union[self, other]  # noqa: UP007  that is this method

    __ror__ = __or__


def member(parent: Any, name: str) -> Any:
    """An attribute of a module or of something in it; a module of a package is imported."""
    if not hasattr(parent, name) and hasattr(parent, "__path__"):
        return importlib.import_module(f"{parent.__name__}.{name}")
    return getattr(parent, name)


@contextlib.contextmanager
def deferred_imports() -> Iterator[None]:
    """Import torch, and give stand-ins for ``PACKAGES`` to those of ``IMPORTERS`` that are imported meanwhile."""
    global _is_noting
    import torch.compiler

    real_import, real_disable = builtins.__import__, torch.compiler.disable

    def import_or_defer(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        importer = (globals or {}).get("__name__") or ""
        if level == 0 and name.startswith(PACKAGES) and importer.startswith(IMPORTERS):
            imported = name if fromlist else name.partition(".")[0]
            package = next((package for package in PACKAGES if f"{name}.".startswith(f"{package}.")), None)
            if package and imported not in sys.modules and importlib.util.find_spec(package):
                return Deferred(package, lambda: importlib.import_module(imported))
        return real_import(name, globals, locals, fromlist, level)

    builtins.__import__, _is_noting = import_or_defer, True
    torch.compiler.disable = disabled_when_compiling  # type: ignore[assignment]
    try:
        yield
    finally:
        builtins.__import__, torch.compiler.disable, _is_noting = real_import, real_disable, False


def install() -> None:
    """Import ``lightning`` with stand-ins when it is imported; a second call does nothing."""
    intercept("lightning", with_stand_ins)


def with_stand_ins(execute: Execute, module: ModuleType) -> None:
    """Run the real module within ``deferred_imports``."""
    with deferred_imports():
        execute(module)


def disabled_when_compiling(function: Any = None, **options: Any) -> Any:
    """``torch.compiler.disable``, which imports torch's compiler, at the first call with that compiler imported."""
    if function is None:
        return functools.partial(disabled_when_compiling, **options)

    @functools.cache
    def disabled() -> Any:
        import torch.compiler

        return torch.compiler.disable(function, **options)  # type: ignore[no-untyped-call]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (disabled() if COMPILER in sys.modules else function)(*args, **kwargs)

    return call
