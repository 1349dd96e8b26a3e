"""Statistics of comparisons that are paired by seed, and over several scenarios.

- Paired differences: Student's t interval and the percentile bootstrap interval of a mean.
- Probability of improvement and interquartile mean, with stratified bootstrap intervals: Agarwal et al., Deep
  Reinforcement Learning at the Edge of the Statistical Precipice, NeurIPS 2021, arXiv:2108.13264.
- Friedman's test over scenarios and Nemenyi's critical difference of average ranks: Demsar, Statistical Comparisons
  of Classifiers over Multiple Data Sets, JMLR 7, 2006.
- The number of pairs that a paired t test needs to find a difference with a given power.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import scipy  # which imports scipy.stats, half a second, when something of it is used
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
_RESAMPLES = 10_000
_MOST_SEEDS = 100_000


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


def t_interval(differences: Numbers, level: float = 0.95) -> tuple[float, float]:
    """Student's interval of a mean of at least two values; (nan, nan) of fewer, a point where they do not vary."""
    if len(differences) < 2:
        return float("nan"), float("nan")
    mean, error = float(differences.mean()), float(scipy.stats.sem(differences))
    if error == 0:
        return mean, mean
    low, high = scipy.stats.t.interval(level, len(differences) - 1, loc=mean, scale=error)
    return float(low), float(high)


def t_p_value(differences: Numbers) -> float:
    """The two-sided p value of a paired t test; nan for fewer than two differences, or where they do not vary."""
    if len(differences) < 2 or np.ptp(differences) == 0:
        return float("nan")
    return float(scipy.stats.ttest_1samp(differences, 0.0).pvalue)


def probability_of_improvement(first: Sequence[Numbers], second: Sequence[Numbers]) -> float:
    """The mean over scenarios of the chance that a run of ``first`` beats one of ``second``; a tie counts half."""
    shares = [
        scipy.stats.mannwhitneyu(one, other, method="asymptotic").statistic / (len(one) * len(other))
        for one, other in zip(first, second, strict=True)
        if len(one) and len(other)
    ]
    return float(np.mean(shares)) if shares else float("nan")


def interquartile_mean(values: Sequence[Numbers]) -> float:
    """The mean of the middle half of all runs of all scenarios."""
    every = np.concatenate(list(values)) if values else np.empty(0)
    return float(scipy.stats.trim_mean(every, 0.25)) if len(every) else float("nan")


def stratified_interval(
    values: Sequence[Numbers], level: float = 0.95, seed: int = 0, resamples: int = 2000
) -> tuple[float, float]:
    """Bootstrap interval of the interquartile mean; runs are drawn again within each scenario."""
    if not values or max(map(len, values)) < 2:
        return float("nan"), float("nan")
    generator = np.random.default_rng(seed)
    drawn = np.concatenate([one[generator.integers(len(one), size=(resamples, len(one)))] for one in values], axis=1)
    low, high = np.quantile(scipy.stats.trim_mean(drawn, 0.25, axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def average_ranks(scores: Numbers) -> Numbers:
    """The mean rank of each column of ``scores`` (scenarios x methods); 1 is the largest score, ties share ranks."""
    return np.asarray(scipy.stats.rankdata(-scores, axis=1).mean(axis=0), dtype=np.float64)


def friedman_p_value(scores: Numbers) -> float:
    """The p value of Friedman's test that the methods (columns) are alike; nan for fewer than 3 methods or 2 rows."""
    if scores.shape[0] < 2 or scores.shape[1] < 3 or (np.ptp(scores, axis=1) == 0).all():
        return float("nan")
    return float(scipy.stats.friedmanchisquare(*scores.T).pvalue)


def critical_difference(num_methods: int, num_scenarios: int, level: float = 0.95) -> float:
    """Nemenyi's: average ranks that differ by more are told apart at this level."""
    quantile = scipy.stats.studentized_range.ppf(level, num_methods, math.inf) / math.sqrt(2)
    return float(quantile * math.sqrt(num_methods * (num_methods + 1) / (6 * num_scenarios)))


def seeds_needed(difference: float, spread: float, power: float = 0.8, level: float = 0.95) -> int | None:
    """The fewest pairs with which a two-sided paired t test finds ``difference`` with this ``power``.

    ``spread`` is the standard deviation of the paired differences. None where more than 100,000 would be needed, and
    for no difference, which no number of pairs finds.
    """
    if difference == 0 or not math.isfinite(difference) or not math.isfinite(spread):
        return None
    if spread == 0:
        return 2
    effect = abs(difference) / spread
    low, high = 2, 2
    while _power(high, effect, level) < power:
        low, high = high + 1, 2 * high
        if low > _MOST_SEEDS:
            return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _power(middle, effect, level) >= power else (middle + 1, high)
    return low


def _power(count: int, effect: float, level: float) -> float:
    limit = scipy.stats.t.ppf((1 + level) / 2, count - 1)
    shift = effect * math.sqrt(count)
    found = scipy.stats.nct.sf(limit, count - 1, shift) + scipy.stats.nct.cdf(-limit, count - 1, shift)
    return float(found) if math.isfinite(found) else 1.0


def spearman(first: Numbers, second: Numbers) -> float:
    """Rank correlation over the pairs where both are known; infinities (never reached) tie at the end."""
    known = ~(np.isnan(first) | np.isnan(second))
    if known.sum() < 2:
        return float("nan")
    ranks = scipy.stats.rankdata(np.stack([first[known], second[known]]), axis=1)
    if (np.ptp(ranks, axis=1) == 0).any():
        return float("nan")
    first, second = ranks - ranks.mean(axis=1, keepdims=True)
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))
