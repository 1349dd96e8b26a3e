"""Statistics against slow or exact references."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fl_platform.errors import UserError
from fl_platform.reporting import inference, render, tables
from fl_platform.reporting.statistics import (
    average_ranks,
    bootstrap_interval,
    critical_difference,
    friedman_p_value,
    interquartile_mean,
    probability_of_improvement,
    seeds_needed,
    spearman,
    stratified_interval,
    t_interval,
    t_p_value,
)
from fl_platform.runs.frames import Runs, to_frames
from fl_platform.runs.record import merge
from tests.synthetic_logs import make_log

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


def test_t_interval_is_the_closed_form() -> None:
    values = np.array([1.0, 2.0, 6.0])
    half = stats.t.ppf(0.975, 2) * values.std(ddof=1) / np.sqrt(3)
    assert t_interval(values) == pytest.approx((3 - half, 3 + half))
    assert t_p_value(values) == pytest.approx(stats.ttest_rel(values, np.zeros(3)).pvalue)
    assert t_interval(np.array([2.0, 2.0])) == (2.0, 2.0)
    assert np.isnan(t_interval(np.array([2.0]))).all()
    assert np.isnan(t_p_value(np.array([2.0, 2.0])))


def test_aggregates_are_those_of_agarwal_et_al() -> None:
    assert interquartile_mean([np.arange(4.0), np.arange(4.0, 8)]) == np.arange(2, 6).mean(), "the middle half of eight"
    first, second = [np.array([1.0, 3.0]), np.array([5.0])], [np.array([2.0, 2.0]), np.array([5.0])]
    assert probability_of_improvement(first, second) == pytest.approx((0.5 + 0.5) / 2), "a tie counts half"
    assert probability_of_improvement(second, first) == pytest.approx(1 - probability_of_improvement(first, second))
    low, high = stratified_interval([np.array([0.0, 10.0]), np.array([100.0, 110.0])])
    assert 0 <= low < 55 < high <= 110
    assert np.isnan(stratified_interval([np.array([1.0])])).all()


def test_ranks_and_nemenyis_difference() -> None:
    scores = np.array([[3.0, 2.0, 1.0], [3.0, 1.0, 1.0]])
    assert average_ranks(scores).tolist() == [1.0, 2.25, 2.75]
    assert friedman_p_value(scores) == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue)
    assert np.isnan(friedman_p_value(scores[:1]))
    # Demsar 2006: q at 0.05 is 2.569 for four methods, so CD = 2.569 sqrt(4 * 5 / (6 * 14)) = 1.25 over 14 data sets
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


@pytest.mark.parametrize(("effect", "pairs"), [(0.5, 34), (0.8, 15), (1.0, 10), (0.2, 199)])  # printed in textbooks
def test_seeds_needed_for_a_paired_t_test(effect: float, pairs: int) -> None:
    assert seeds_needed(effect, 1.0) == pairs
    assert seeds_needed(-3 * effect, 3.0) == pairs


def test_seeds_needed_at_the_edges() -> None:
    assert seeds_needed(1.0, 0.0) == 2
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(0.0, 0.0) is None, "two methods that are the same"
    assert seeds_needed(1e-6, 1.0) is None
    assert seeds_needed(1e6, 1.0) == 2


@pytest.fixture(scope="module")
def compared() -> Runs:
    """GradMA beats FedAvg by 1, 2, 3 points; MOON's differences vary in sign."""
    tops = {"fedavg": (0.5, 0.6, 0.7), "gradma": (0.51, 0.62, 0.73), "moon": (0.52, 0.58, 0.71)}
    logs = [
        make_log(name, seed, [top], omega=omega)
        for name, each in tops.items()
        for seed, top in enumerate(each)
        for omega in (1.0, 0.1)
    ]
    return to_frames(merge(logs))


def test_paired_differences_are_seed_by_seed(compared: Runs) -> None:
    table = inference.paired_table(compared, "fedavg")
    cell = table.numbers[(table.numbers["algorithm"] == "gradma") & (table.numbers["skew"] == "1.0")].iloc[0]
    assert cell["difference"] == pytest.approx(2.0)
    assert (cell["low"], cell["high"]) == pytest.approx(t_interval(np.array([1.0, 2.0, 3.0])))
    assert cell["text"] == "+2.00 [-0.48, +4.48] (n=3)"
    with pytest.raises(UserError, match="reference=mifa has no finished run; there is fedavg, moon, gradma"):
        inference.paired_table(compared, "mifa")


def test_tables_of_ranks_aggregates_and_power(compared: Runs) -> None:
    ranks = inference.rank_table(compared)
    assert [row.label for row in ranks.blocks[0]] == ["GradMA", "MOON", "FedAvg"]
    assert "2 scenarios" in str(ranks.notes[0])
    whole = inference.aggregate_table(compared, "fedavg").numbers.set_index("algorithm")
    assert whole.loc["gradma", "interquartile_mean"] == pytest.approx(62.0)
    assert whole.loc["gradma", "probability_of_improvement"] == pytest.approx(6 / 9)
    power = inference.power_table(compared, "fedavg").numbers
    assert power.loc[power["algorithm"] == "gradma", "seeds"].tolist() == [seeds_needed(2.0, 1.0)] * 2
    larger = inference.power_table(compared, "fedavg", difference=10.0).numbers
    assert (larger["seeds"] <= power["seeds"]).all()
    with pytest.raises(UserError, match="power=2 is not allowed"):
        inference.power_table(compared, "fedavg", power=2)


def test_bold_only_what_the_interval_supports(compared: Runs) -> None:
    def bold(runs: Runs) -> list[str]:
        table = tables.statistic_table(runs, bold="supported")
        assert "t interval excludes zero" in render.latex(table)
        return [row.label for block in table.blocks for row in block if row.cells[0].is_bold]

    assert bold(compared) == []
    clear = [make_log("fedprox", seed, [top]) for seed, top in enumerate((0.6, 0.7, 0.8))]
    clear += [make_log("fedavg", seed, [top]) for seed, top in enumerate((0.5, 0.601, 0.7))]
    assert bold(to_frames(merge(clear))) == ["FedProx"]
