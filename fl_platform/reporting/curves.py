"""The one computation of a curve and its band: align the seeds, smooth each, then mean and standard deviation.

Figures, the dashboard and the exported page draw what ``average`` returns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fl_platform.reporting.statistics import Numbers


@dataclass(frozen=True)
class Seed:
    """One run's metric: its value at some rounds, and where these rounds lie on the x axis (rounds, bytes, seconds)."""

    rounds: Numbers
    values: Numbers
    x: Numbers


@dataclass(frozen=True)
class Curve:
    """Means over seeds with a band of one standard deviation (ddof=1) around them.

    ``n`` is how many seeds each point averages; ``low`` and ``high`` are NaN where it is one.
    """

    x: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers
    n: Numbers

    def part(self, chosen: "slice | np.ndarray[tuple[int], np.dtype[np.intp]]") -> "Curve":
        """Some of the points."""
        return Curve(self.x[chosen], self.mean[chosen], self.low[chosen], self.high[chosen], self.n[chosen])

    @property
    def has_band(self) -> bool:
        return bool(np.isfinite(self.low).any())


def average(seeds: Sequence[Seed], smooth: int = 1, most: float = np.inf) -> Curve:
    """The curve of some seeds, over every round at which one of them has a finite value.

    Each seed is smoothed by itself, over its last ``smooth`` values; then mean and standard deviation are taken over
    the seeds that have a value at a round, and x is averaged over the same seeds. ``most`` is the largest value the
    metric can have; the band does not exceed it, nor zero from above if no mean is negative.
    """
    known = [_finite(seed) for seed in seeds]
    rounds = np.unique(np.concatenate([seed.rounds for seed in known])) if known else np.empty(0)
    values, x = np.full((2, len(rounds), len(known)), np.nan)
    for place, seed in enumerate(known):
        rows = np.searchsorted(rounds, seed.rounds)
        values[rows, place] = trailing_mean(seed.values, smooth)
        x[rows, place] = seed.x
    n = np.isfinite(values).sum(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):  # the losses of a run that diverges may exceed float64
        mean = np.nansum(values, axis=1) / n
        squares = np.nansum((values - mean[:, None]) ** 2, axis=1)
        spread = np.sqrt(squares / np.where(n > 1, n - 1, np.nan))
        low, high = mean - spread, np.minimum(mean + spread, most)
    low = np.maximum(low, 0.0) if (mean >= 0).all() else low
    return Curve(np.nansum(x, axis=1) / n, mean, low, high, n)


def _finite(seed: Seed) -> Seed:
    known = np.isfinite(seed.rounds) & np.isfinite(seed.values) & np.isfinite(seed.x)
    return Seed(seed.rounds[known], seed.values[known], seed.x[known])


def trailing_mean(values: Numbers, width: int) -> Numbers:
    """The mean of each value and the ``width - 1`` before it, of as many as there are at the beginning."""
    if width <= 1:
        return values
    return np.asarray(pd.Series(values).rolling(width, min_periods=1).mean(), dtype=np.float64)
