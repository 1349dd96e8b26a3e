"""Notices worker hooks that write `self`, whose result would depend on the order of workers, threads and ranks.

What is compared before and after the local work of a round costs microseconds: which objects the algorithm's attributes
are, those of its classes and of objects of the user's that they hold, the version counters of tensors, items of
containers, and the content of small NumPy arrays. What is written through `Tensor.data`, or to globals, is not noticed.
"""

import functools
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from fl_platform.algorithms.base import Algorithm
from fl_platform.algorithms.returned import HookError
from fl_platform.federation.user_code import is_users_class

WORKER_HOOKS = ("survey_local", "start_local", "local_loss", "local_direction", "finish_local")
Marks = dict[str, tuple[Any, int]]
_DEEPEST, _MOST_ITEMS, _LARGEST_ARRAY = 4, 100, 1 << 16


class WorkerWriteError(HookError):
    """A worker hook wrote an attribute of its algorithm, or the global model that all workers are given."""

    def __init__(self, algorithm: Algorithm, name: str) -> None:
        own = [hook for hook in WORKER_HOOKS if getattr(type(algorithm), hook) is not getattr(Algorithm, hook)]
        super().__init__(
            algorithm,
            own[0] if own else WORKER_HOOKS[0],
            f"a worker hook of {type(algorithm).__name__} ({', '.join(own)}) wrote {name}; "
            "worker hooks may not write self: return what a worker keeps or sends from finish_local, "
            "and write server state in server hooks",
        )


class Watch:
    """What worker hooks may not write: look at it before them, and ``check`` it after them."""

    def __init__(self, algorithm: Algorithm, **given: Tensor) -> None:
        """``given`` are tensors that every worker is given, by name."""
        self._algorithm, self._given = algorithm, given
        self._before = self._marks()

    def _marks(self) -> Marks:
        """Where a value is -> it and its mark; that holds the values, so that none is replaced by another."""
        found = {name: (value, _mark(value)) for name, value in self._given.items()}
        for path, value in _values(self._algorithm):
            found[path] = (value, _mark(value))
        return found

    def check(self) -> None:
        """Raise WorkerWriteError for a value that was set, written in place, extended or removed meanwhile."""
        now = self._marks()
        for path in {**self._before, **now}:  # what holds a value before the value
            old, new = self._before.get(path), now.get(path)
            if old is None or new is None or old[0] is not new[0] or old[1] != new[1]:
                raise WorkerWriteError(self._algorithm, path)


def _values(algorithm: Algorithm) -> Iterator[tuple[str, Any]]:
    """(path, value) of everything that an algorithm's attributes lead to, itself and its classes included."""
    for name, value in _attributes(algorithm):
        yield from _walk(f"self.{name}", value, _DEEPEST)
    for kind in type(algorithm).__mro__:
        if is_users_class(kind):
            for name, value in vars(kind).items():
                if not name.startswith("__") and not callable(value) and not hasattr(value, "__get__"):
                    yield from _walk(f"{kind.__name__}.{name}", value, _DEEPEST)


def _attributes(owner: Any) -> Iterator[tuple[str, Any]]:
    """Its attributes, but for what is computed on its first use, from what does not change."""
    for name, value in vars(owner).items():
        if not isinstance(getattr(type(owner), name, None), functools.cached_property):
            yield name, value


def _walk(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    yield path, value
    if depth == 0:
        return
    if isinstance(value, list | tuple | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for (key, item), _ in zip(items, range(_MOST_ITEMS), strict=False):
            yield from _walk(f"{path}[{key!r}]", item, depth - 1)
    elif is_users_class(value.__class__) and hasattr(value, "__dict__"):
        for name, item in _attributes(value):
            yield from _walk(f"{path}.{name}", item, depth - 1)


def _mark(value: Any) -> int:
    if isinstance(value, Tensor):
        return 0 if value.is_inference() else value._version
    if isinstance(value, np.ndarray):
        is_small = value.nbytes <= _LARGEST_ARRAY and not value.dtype.hasobject
        return zlib.crc32(value.tobytes()) if is_small else 0
    return len(value) if isinstance(value, list | dict | set) else 0
