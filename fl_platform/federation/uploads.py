"""Which vectors a worker sends, by name, and which part of them."""

from dataclasses import replace

from fl_platform.algorithms.base import Algorithm
from fl_platform.engines.work import LocalResult

UPDATE = "update"
"""What x_t - x_i is called among the vectors that travel."""


def travelling(algorithm: Algorithm) -> list[str]:
    """Return what each worker sends: its update, unless what it ``sends`` fills all its uploads (MIFA), and that."""
    update = [UPDATE] if algorithm.uploads > len(algorithm.sends) else []
    return [*update, *algorithm.sends]


def update_sent_as(algorithm: Algorithm) -> str:
    """Return what a worker sends as its update: the update itself, or the vector that stands in for it."""
    return next(iter(travelling(algorithm)), UPDATE)


def without_private(result: LocalResult, algorithm: Algorithm) -> LocalResult:
    """Return the result with zeros in what travels where a number never leaves its worker."""
    private = algorithm.private
    if private is None:
        return result
    sent = {name: result.outcome[name].masked_fill(private, 0) for name in algorithm.sends}
    return replace(result, delta=result.delta.masked_fill(private, 0), outcome={**result.outcome, **sent})
