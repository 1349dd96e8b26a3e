"""Rounds that end without a word: Lightning takes StopIteration, whoever raises it, for the end of the data."""

import functools
from collections.abc import Callable
from typing import Any


class StoppedStep(RuntimeError):
    """StopIteration was raised within a step, as by ``next()`` of something that is empty."""


class SkippedRound(RuntimeError):
    """No round was carried out in an epoch: a callback raised StopIteration."""

    def __init__(self, round: int) -> None:
        super().__init__(
            f"round {round} was not carried out: a callback raised StopIteration, which Lightning takes for its end"
        )


def without_stop_iteration(step: Callable[..., None]) -> Callable[..., None]:
    """Let a step of a LightningModule raise StoppedStep, with the same traceback, in place of StopIteration."""

    @functools.wraps(step)
    def wrapped(*args: Any) -> None:
        try:
            step(*args)
        except StopIteration as error:
            raise StoppedStep(f"StopIteration {error}".rstrip()).with_traceback(error.__traceback__) from None

    return wrapped
