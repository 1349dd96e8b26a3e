"""The one computation of a curve and its band, against closed forms."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_platform.reporting.curves import Seed, average, trailing_mean


def seed(*values: float, rounds: list[float] | None = None, x: list[float] | None = None) -> Seed:
    at = np.array(rounds if rounds is not None else np.arange(1.0, len(values) + 1))
    return Seed(at, np.array(values, dtype=float), at if x is None else np.array(x))


def test_two_seeds_have_a_mean_and_a_band_of_one_standard_deviation() -> None:
    """Of a and b the mean is (a + b) / 2 and the standard deviation (ddof=1) |a - b| / sqrt(2)."""
    curve = average([seed(0.25, 0.5), seed(0.75, 0.5)])
    assert curve.x.tolist() == [1, 2]
    assert curve.mean.tolist() == [0.5, 0.5]
    assert curve.low.tolist() == pytest.approx([0.5 - 0.5 / 2**0.5, 0.5])
    assert curve.high.tolist() == pytest.approx([0.5 + 0.5 / 2**0.5, 0.5])
    assert curve.n.tolist() == [2, 2]


def test_each_seed_is_smoothed_before_the_spread_is_taken() -> None:
    """1, 3, 5 and 3, 1, 3 become 1, 2, 4 and 3, 2, 2: the spreads are sqrt(2), 0, sqrt(2).

    The spread of the raw values, smoothed afterwards, would be sqrt(2) at every round.
    """
    curve = average([seed(1, 3, 5), seed(3, 1, 3)], smooth=2)
    assert curve.mean.tolist() == [2, 2, 3]
    assert (curve.high - curve.mean).tolist() == pytest.approx([2**0.5, 0, 2**0.5])


def test_a_shorter_seed_counts_where_it_has_values() -> None:
    """It does not go on by smoothing, and where one seed is left there is no band."""
    curve = average([seed(1, 2, 3, 4), seed(3, 4)], smooth=3)
    assert curve.n.tolist() == [2, 2, 1, 1]
    assert curve.mean.tolist() == [2, 2.5, 2, 3]
    assert np.isfinite(curve.low).tolist() == np.isfinite(curve.high).tolist() == [True, True, False, False]


def test_smoothing_is_over_the_values_a_seed_has() -> None:
    """One seed is evaluated every round, the other every second one: its last two values lie two rounds apart."""
    curve = average([seed(0, 0, 0, 0), seed(2, 4, rounds=[2, 4])], smooth=2)
    assert curve.x.tolist() == [1, 2, 3, 4]
    assert curve.mean.tolist() == [0, 1, 0, 1.5]


def test_a_single_seed_has_no_band() -> None:
    curve = average([seed(1, 2, 3)])
    assert not curve.has_band
    assert curve.mean.tolist() == [1, 2, 3]
    assert average([seed(1, 2, 3), seed(2, 3, 4)]).has_band


def test_what_is_not_finite_is_left_out() -> None:
    curve = average([seed(1, np.nan, np.inf, 4), seed(1, np.nan, 3, 2)])
    assert curve.x.tolist() == [1, 3, 4]
    assert curve.mean.tolist() == [1, 3, 3]
    assert curve.n.tolist() == [2, 1, 2]


def test_no_seeds_and_no_values_make_an_empty_curve() -> None:
    assert len(average([]).x) == len(average([seed(np.nan)]).mean) == 0
    assert not average([]).has_band


def test_the_axis_is_averaged_over_the_same_seeds() -> None:
    curve = average([seed(1, 1, 1, x=[10, 20, 30]), seed(2, 2, x=[30, 40])])
    assert curve.x.tolist() == [20, 30, 30]


def test_a_band_stays_within_what_the_metric_can_be() -> None:
    curve = average([seed(0.0, 0.9), seed(0.2, 1.0)], most=1.0)
    assert curve.low.tolist() == pytest.approx([0.0, 0.95 - 0.1 / 2**0.5])
    assert curve.high.tolist() == pytest.approx([0.1 + 0.2 / 2**0.5, 1.0])
    negative = average([seed(-2, 0), seed(0, 0.5)])  # a metric that is negative somewhere has no lower bound
    assert negative.low.tolist() == pytest.approx([-1 - 2**0.5, 0.25 - 0.5 / 2**0.5])


def test_losses_beyond_float64_warn_of_nothing() -> None:
    curve = average([seed(1e308, 1.0), seed(1.5e308, 3.0)])
    assert curve.mean[1] == 2.0
    assert len(curve.x) == 2


@given(st.lists(st.floats(-1e6, 1e6), max_size=50), st.integers(1, 9))
def test_trailing_mean_is_that_of_the_last_values(values: list[float], width: int) -> None:
    found = trailing_mean(np.array(values), width)
    expected = [np.mean(values[max(0, end - width) : end]) for end in range(1, len(values) + 1)]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-6)


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=20), min_size=1, max_size=5))
def test_mean_and_spread_are_those_of_pandas(values: list[list[float]]) -> None:
    curve = average([seed(*one) for one in values])
    table = pd.DataFrame([pd.Series(one) for one in values])
    np.testing.assert_allclose(curve.mean, table.mean(), atol=1e-12)
    np.testing.assert_allclose(curve.high, table.mean() + table.std(ddof=1), atol=1e-12)
    np.testing.assert_allclose(curve.low, (table.mean() - table.std(ddof=1)).clip(lower=0), atol=1e-12)
