"""Small-sample statistics of comparisons that are paired by seed."""

import itertools

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
_RESAMPLES = 10_000


def bootstrap_interval(differences: Numbers, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean; all n^n resamples when these are few, else seeded random ones.

    With n differences the interval cannot leave their range, so with 3 seeds it is a description, not a proof.
    """
    count = len(differences)
    if count < 2:
        return float("nan"), float("nan")
    if count**count <= _RESAMPLES:
        picks = np.array(list(itertools.product(range(count), repeat=count)))
    else:
        picks = np.random.default_rng(seed).integers(count, size=(_RESAMPLES, count))
    low, high = np.quantile(differences[picks].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def spearman(first: Numbers, second: Numbers) -> float:
    """Rank correlation over the pairs where both are known; infinities (never reached) tie at the end."""
    known = ~(np.isnan(first) | np.isnan(second))
    if known.sum() < 2:
        return float("nan")
    ranks = np.stack([_average_ranks(values[known]) for values in (first, second)])
    if (np.ptp(ranks, axis=1) == 0).any():
        return float("nan")
    first, second = ranks - ranks.mean(axis=1, keepdims=True)
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


def _average_ranks(values: Numbers) -> Numbers:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[places], dtype=np.float64)
