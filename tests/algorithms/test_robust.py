"""Robust aggregation: closed forms, what each rule is at the edges of its options, and rules inside other methods."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fl_platform.algorithms.base import Updates, names
from fl_platform.algorithms.coordinate_rules import Median, TrimmedMean
from fl_platform.algorithms.fednova import FedNova
from fl_platform.algorithms.fedprox import FedProx
from fl_platform.algorithms.fedspeed import FedSpeed
from fl_platform.algorithms.krum import Krum, MultiKrum
from fl_platform.algorithms.momentum import SlowMomentum
from fl_platform.algorithms.norm_clipping import NormClipping
from fl_platform.algorithms.rfa import Rfa
from fl_platform.algorithms.shares import whole_share
from fl_platform.errors import UserError
from tests.algorithms.trajectories import run, run_quadratics
from tests.federations import make_config

RULES = [Median(), TrimmedMean(trimmed=0.2), Krum(), MultiKrum(), Rfa(), NormClipping(max_norm=None)]


def updates(rows, weights=None):
    delta = torch.as_tensor(rows, dtype=torch.float64)
    count = len(delta)
    shares = torch.full((count,), 1 / count, dtype=torch.float64) if weights is None else torch.tensor(weights).double()
    origin = torch.zeros(delta.shape[1], dtype=torch.float64)
    return Updates(1, np.arange(count), delta, shares, shares, {}, origin, np.ones(count, int), 0.1, 0.0)


def random_rows(count, dim=7, seed=0):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_median_is_numpys(count):
    rows = random_rows(count)
    assert np.allclose(Median().server_direction(updates(rows)), np.median(rows.numpy(), axis=0), rtol=0, atol=1e-15)


def test_trimmed_mean_leaves_out_both_ends_of_every_coordinate():
    rows = [[1.0, 50.0], [2.0, 4.0], [3.0, -9.0], [100.0, 5.0], [-70.0, 6.0]]
    found = TrimmedMean(trimmed=0.2).server_direction(updates(rows))
    torch.testing.assert_close(found, torch.tensor([2.0, 5.0], dtype=torch.float64))


def test_trimmed_mean_weights_what_it_keeps():
    found = TrimmedMean(trimmed=0.25).server_direction(
        updates([[0.0], [1.0], [5.0], [9.0]], weights=[0.4, 0.1, 0.3, 0.2])
    )
    assert found.item() == pytest.approx((0.1 * 1 + 0.3 * 5) / 0.4)


def test_krum_scores_are_sums_over_the_closest():
    """Points 0, 1, 3, 10, 11 on a line and f = 1: the two closest of each, 1+9, 1+4, 4+9, 1+49, 1+64."""
    stack = updates([[0.0], [1.0], [3.0], [10.0], [11.0]])
    assert Krum(faulty=0.2).scores(stack.delta).tolist() == [10, 5, 13, 50, 65]
    assert Krum(faulty=0.2).server_direction(stack).tolist() == [1.0]
    assert MultiKrum(faulty=0.2, selected=3).server_direction(stack).item() == pytest.approx(4 / 3)
    assert MultiKrum(faulty=0.2).server_direction(stack).item() == pytest.approx(14 / 4)


def test_multi_krum_weights_what_it_selects():
    stack = updates([[0.0], [1.0], [100.0]], weights=[0.2, 0.6, 0.2])
    assert MultiKrum(faulty=0.4).server_direction(stack).item() == pytest.approx(0.75)


def test_geometric_median_has_balanced_unit_vectors():
    """The optimality condition: sum_i w_i (v - d_i) / |v - d_i| = 0."""
    stack = updates(random_rows(6), weights=[0.1, 0.2, 0.1, 0.25, 0.05, 0.3])
    difference = Rfa(iterations=500).server_direction(stack) - stack.delta
    pull = stack.weights @ (difference / difference.norm(dim=1, keepdim=True))
    assert pull.norm() < 1e-9


def test_geometric_median_on_a_line_is_the_median():
    found = Rfa(iterations=2000).server_direction(updates([[1.0], [2.0], [4.0], [50.0], [900.0]]))
    assert found.item() == pytest.approx(4.0, abs=1e-3)


def test_clipped_updates_have_the_largest_norm():
    found = NormClipping(max_norm=1.0).server_direction(updates([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]))
    torch.testing.assert_close(found, torch.tensor([0.9, 1.2], dtype=torch.float64) / 3)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_equal_updates_are_their_own_aggregate(rule):
    row = random_rows(1)[0]
    for count in (1, 2, 3, 10):
        torch.testing.assert_close(rule.server_direction(updates(row.repeat(count, 1))), row)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.name != "norm_clipping"], ids=lambda rule: rule.name)
def test_two_of_ten_huge_updates_leave_the_rest_in_charge(rule):
    rows = 1 + 0.01 * random_rows(10)
    rows[[2, 7]] = -1e6
    assert (rule.server_direction(updates(rows)) - 1).abs().max() < 0.05


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("trimmed_mean", "trimmed=0"),
        ("trimmed_mean", "trimmed=0.3"),  # floor(0.3 * 3) = 0
        ("multi_krum", "selected=3"),
        ("multi_krum", "faulty=0"),
        ("norm_clipping", "max_norm=null"),
    ],
)
@pytest.mark.parametrize("aggregation", ["uniform", "samples"])
def test_edges_are_fedavg_bit_for_bit(name, option, aggregation):
    found = run(name, f"algorithm.{option}", f"aggregation={aggregation}")
    assert torch.equal(found.rounds, run("fedavg", f"aggregation={aggregation}").rounds)


def test_a_wide_norm_is_fedavg():
    torch.testing.assert_close(run("norm_clipping", "algorithm.max_norm=1e9").rounds, run("fedavg").rounds)


@pytest.mark.parametrize("name", ["median", "krum", "rfa"])
def test_one_worker_per_round_is_fedavg(name):
    torch.testing.assert_close(run(name, "cohort_size=1").rounds, run("fedavg", "cohort_size=1").rounds)


def test_the_median_of_quadratics_ends_at_the_median_of_their_minima():
    """d_i = (1 - rho)(x - a_i), so the median of updates is (1 - rho)(x - median a): x contracts to it."""
    targets = np.array([[0, 10], [5, 200], [250, 20], [40, 30], [20, 90]], dtype=np.uint8)
    done, a = run_quadratics("median", "num_rounds=60", "local_lr=0.3", targets=targets)
    torch.testing.assert_close(done.rounds[-1], a.median(dim=0).values)


def test_a_rule_joins_another_method_in_one_line():
    before = set(names())

    @dataclass(eq=False)
    class MedianProxM(SlowMomentum, FedProx, Median):
        """FedProx workers; slow momentum on the median of their updates."""

    rule = MedianProxM(momentum_decay=0.5, mu=0.1)
    rule.momentum = torch.ones(2, dtype=torch.float64)
    assert rule.server_direction(updates([[1.0, 4.0], [2.0, 5.0], [90.0, 6.0]])).tolist() == [2.5, 5.5]
    assert set(names()) == before


def test_more_selected_than_sampled_is_refused():
    with pytest.raises(UserError, match=r"algorithm.selected=4 is not allowed; it must be <= cohort_size=3"):
        make_config("algorithm.name=multi_krum", "algorithm.selected=4")


def test_a_share_is_the_decimal_that_was_written():
    """0.29 * 100 is 28.999... in floating point."""
    assert [whole_share(0.29, 100), whole_share(0.2, 10), whole_share(0.3, 3), whole_share(0.49, 1)] == [29, 2, 0, 0]
    assert Krum(faulty=0.29).num_faulty(100) == 29


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_krum_of_a_cohort_too_small_for_the_theory_takes_the_one_with_the_closest_neighbour(count):
    """S > 2 f + 2 does not hold: scores are distances to the closest update, and the first of equals wins."""
    rows = [[0.0], [0.1], [5.0], [9.0]][:count]
    assert Krum(faulty=0.4).server_direction(updates(rows)).tolist() == [0.0]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_the_widest_trimming_keeps_the_middle(count):
    """trimmed just below a half leaves one update of an odd cohort and two of an even one: the median."""
    rows = random_rows(count)
    found = TrimmedMean(trimmed=0.499).server_direction(updates(rows))
    torch.testing.assert_close(found, Median().server_direction(updates(rows)))


@pytest.mark.parametrize("kind", [FedNova, FedSpeed])
def test_a_rule_stands_in_for_the_average_of_methods_with_an_average_of_their_own(kind):
    """FedNova averages updates per step, FedSpeed what workers send instead of their update."""
    joined = dataclass(eq=False)(type("Joined", (kind, Median), {}))()
    rows = torch.tensor([[1.0, 4.0], [2.0, 5.0], [90.0, -6.0]], dtype=torch.float64)
    given = replace(updates(rows), sent={"corrected_update": rows})
    assert joined.server_direction(given).tolist() == [2.0, 4.0]
