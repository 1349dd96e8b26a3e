"""Notices worker hooks that write `self`, whose result would depend on the order of workers, threads and ranks.

What is compared before and after the local work of a round costs microseconds: which objects the algorithm's attributes
are, the version counters of tensors, the lengths of containers. A number written into a NumPy array is not noticed.
"""

import functools
from typing import Any

from torch import Tensor

from fl_platform.algorithms.base import Algorithm, HookError

WORKER_HOOKS = ("start_local", "local_loss", "local_direction", "finish_local")
Marks = dict[str, tuple[Any, int]]


class WorkerWriteError(HookError):
    """A worker hook wrote an attribute of its algorithm."""

    def __init__(self, algorithm: Algorithm, name: str) -> None:
        own = [hook for hook in WORKER_HOOKS if getattr(type(algorithm), hook) is not getattr(Algorithm, hook)]
        super().__init__(
            algorithm,
            own[0] if own else WORKER_HOOKS[0],
            f"a worker hook of {type(algorithm).__name__} ({', '.join(own)}) wrote self.{name}; "
            "worker hooks may not write self: return what a worker keeps or sends from finish_local, "
            "and write server state in server hooks",
        )


def marks(algorithm: Algorithm) -> Marks:
    """What ``check_unwritten`` compares; it holds the objects, so that none is replaced by another in its place."""
    return {name: (value, _mark(value)) for name, value in vars(algorithm).items()}


def check_unwritten(algorithm: Algorithm, before: Marks) -> None:
    """Raise WorkerWriteError for an attribute that was set, written in place, extended or removed since ``before``."""
    now = vars(algorithm)
    for name in before.keys() | now.keys():
        if isinstance(getattr(type(algorithm), name, None), functools.cached_property):
            continue  # computed on its first use, from what does not change
        old, new = before.get(name), now.get(name)
        if old is None or name not in now or new is not old[0] or _mark(new) != old[1]:
            raise WorkerWriteError(algorithm, name)


def _mark(value: Any) -> int:
    if isinstance(value, Tensor):
        return 0 if value.is_inference() else value._version
    return len(value) if isinstance(value, list | dict | set) else 0
