"""Statistics against slow or exact references."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fl_platform.reporting.statistics import bootstrap_interval, spearman

numbers = st.floats(-100, 100, allow_nan=False)


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=16))
def test_spearman_is_scipys(pairs: list[tuple[float, float]]) -> None:
    first, second = map(np.array, zip(*pairs, strict=True))
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        assert np.isnan(spearman(first, second))
    else:
        assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-12)


def test_spearman_drops_unknown_and_ties_the_unreached() -> None:
    nan, inf = np.nan, np.inf
    assert spearman(np.array([1.0, 2, 3, nan]), np.array([10.0, 20, 30, 0])) == pytest.approx(1)
    first, second = np.array([1.0, 2, inf, inf]), np.array([1.0, 2, 3, inf])
    assert spearman(first, second) == pytest.approx(stats.spearmanr([1, 2, 9, 9], [1, 2, 3, 4]).statistic)
    assert np.isnan(spearman(np.array([1.0]), np.array([1.0])))


def test_bootstrap_of_three_is_exact() -> None:
    low, high = bootstrap_interval(np.array([0.0, 3.0, 6.0]), level=0.9)
    means = sorted((a + b + c) / 3 for a in (0, 3, 6) for b in (0, 3, 6) for c in (0, 3, 6))
    assert (low, high) == pytest.approx(tuple(np.quantile(means, [0.05, 0.95])))
    assert np.isnan(bootstrap_interval(np.array([1.0]))).all()


@given(st.lists(numbers, min_size=2, max_size=12), st.floats(0.5, 0.99))
def test_bootstrap_stays_within_the_values_and_is_seeded(values: list[float], level: float) -> None:
    array = np.array(values)
    low, high = bootstrap_interval(array, level)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert (low, high) == bootstrap_interval(array, level)


def test_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = [low <= 0 <= high for low, high in (bootstrap_interval(rng.normal(size=12), seed=i) for i in range(150))]
    assert 0.85 <= np.mean(hits) <= 0.99
