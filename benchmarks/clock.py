"""Wall and CPU time of pieces of work, taken in turns so that they meet the same machine."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seconds:
    """What a clock on the wall says, and the time the process was really computing: they part on a loaded machine."""

    wall: float
    cpu: float

    @staticmethod
    def now() -> "Seconds":
        return Seconds(time.perf_counter(), time.process_time())

    def __sub__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.wall - other.wall, self.cpu - other.cpu)

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.wall + other.wall, self.cpu + other.cpu)

    def __mul__(self, factor: float) -> "Seconds":
        return Seconds(self.wall * factor, self.cpu * factor)

    def __truediv__(self, other: "Seconds") -> "Ratio":
        return Ratio(self.wall / other.wall, self.cpu / other.cpu if other.cpu else None)


@dataclass(frozen=True)
class Ratio:
    """A figure by the wall clock and, where it is known, by CPU time."""

    wall: float
    cpu: float | None = None

    def __mul__(self, factor: float) -> "Ratio":
        return Ratio(self.wall * factor, None if self.cpu is None else self.cpu * factor)


def median(times: Sequence[Seconds]) -> Seconds:
    return Seconds(statistics.median(t.wall for t in times), statistics.median(t.cpu for t in times))


def total(times: Sequence[Seconds]) -> Seconds:
    return sum(times, Seconds(0.0, 0.0))


def timed(work: Callable[[], Any]) -> Seconds:
    start = Seconds.now()
    work()
    return Seconds.now() - start


def in_turns(repeats: int, *works: Callable[[], Any]) -> list[Seconds]:
    """The median time of each piece of work: all once to warm up, then all ``repeats`` times in turns."""
    for work in works:
        work()
    times: list[list[Seconds]] = [[] for _ in works]
    for _ in range(repeats):
        for own, work in zip(times, works, strict=True):
            own.append(timed(work))
    return [median(own) for own in times]


class Meter:
    """Time by part, taken from outside by wrapping methods; a part's own time is without the parts it calls."""

    def __init__(self) -> None:
        self.spent: dict[str, Seconds] = {}
        self._stack: list[str] = []
        self._since = Seconds.now()
        self._undo: list[Callable[[], None]] = []

    def _settle(self) -> None:
        now = Seconds.now()
        if self._stack:
            name = self._stack[-1]
            self.spent[name] = self.spent.get(name, Seconds(0.0, 0.0)) + (now - self._since)
        self._since = now

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._settle()
        self._stack.append(name)
        try:
            yield
        finally:
            self._settle()
            self._stack.pop()

    def wrap(self, owner: Any, method: str, part: str, seen: Callable[[Any], None] | None = None) -> None:
        """Count a method of an object to a part; ``seen`` is given what it returns."""
        original, is_own = getattr(owner, method), method in vars(owner)

        def metered(*args: Any, **kwargs: Any) -> Any:
            with self.part(part):
                result = original(*args, **kwargs)
            if seen is not None:
                seen(result)
            return result

        setattr(owner, method, metered)
        self._undo.append(lambda: setattr(owner, method, original) if is_own else delattr(owner, method))

    def clear(self) -> None:
        self.spent.clear()

    def unwrap(self) -> None:
        while self._undo:
            self._undo.pop()()
