"""Lets ``import torchvision`` succeed where its compiled operators do not load.

torchvision built for CUDA beside torch built for the CPU cannot load its C++ library. It tolerates that, except
in ``torchvision._meta_registrations``, which describes operators that then do not exist and ends the whole import
with ``RuntimeError: operator torchvision::nms does not exist``; ``import lightning`` fails with it, through
torchmetrics. Data sets and transforms are plain Python and need none of those operators.

So one finder intercepts that one module, runs the real code, and leaves the module empty where it fails and the
operators were not loaded. Everywhere else nothing changes. Calling an operator such as ``torchvision.ops.nms``
still raises torchvision's own explanation.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULE = "torchvision._meta_registrations"


class _Loader:
    """Runs the real module; an absent torchvision operator empties it instead of failing the import."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self.real.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self.real
        before = dict(vars(module))
        try:
            self.real.exec_module(module)
        except RuntimeError:
            if not _are_operators_absent():
                raise
            vars(module).clear()
            vars(module).update(before)
            _Finder.is_operator_missing = True


def _are_operators_absent() -> bool:
    """Whether torchvision, which loads its compiled operators before this module, did not find them."""
    extension = sys.modules.get("torchvision.extension")
    return extension is not None and not extension._has_ops()


class _Finder:
    """Finds ``torchvision._meta_registrations`` where Python would, and nothing else."""

    is_operator_missing = False

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != MODULE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


def install() -> None:
    """Put the finder first; a second call does nothing."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def is_operator_missing() -> bool:
    """Whether torchvision was imported without its compiled operators."""
    return _Finder.is_operator_missing
