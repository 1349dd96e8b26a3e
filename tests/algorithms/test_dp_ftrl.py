"""DP-FTRL: the noise of its tree, what its accountant composes, its edges, and cohorts in which workers take turns."""

import math

import dp_accounting.rdp
import numpy as np
import pytest
import torch

from fl_platform.algorithms.accountant import Accountant, TreeAccountant
from fl_platform.algorithms.base import Federation
from fl_platform.algorithms.dp_ftrl import DpFtrl, changed_nodes
from fl_platform.errors import UserError
from fl_platform.federation.pool import WorkerPool
from fl_platform.models.flat import Layout
from fl_platform.runs import metrics
from tests.algorithms.test_dp_fedavg import mean, updates
from tests.federations import make_config, train

CPU = torch.device("cpu")
DIM = 100_000


def started(num_workers=32, cohort_size=4, dim=DIM, **fields):
    algorithm = DpFtrl(delta=0.01, **fields)
    layout = Layout(("x",), (torch.Size([dim]),))
    algorithm.start(Federation(None, layout, num_workers, cohort_size, 1, 0, CPU, torch.float64))
    return algorithm


def test_a_prefix_sum_has_a_node_for_every_one_in_its_binary_form():
    held = set()
    for step in range(1, 100):
        new, replaced = changed_nodes(step)
        assert held >= set(replaced)
        held = (held - set(replaced)) | {new}
        covered = sorted(place for height, end in held for place in range(end - 2**height + 1, end + 1))
        assert covered == list(range(1, step + 1))
        assert len(held) == step.bit_count()


def test_the_model_has_the_noise_of_its_nodes_and_a_new_tree_begins_with_an_epoch():
    """Nobody moves: t of the eight rounds of a tree put the model off by z C sqrt(bits of t) / S; trees add up."""
    rule = started(noise_multiplier=1.5, clip_norm=0.2)
    model, unit = torch.zeros(DIM, dtype=torch.float64), 1.5 * 0.2 / 4
    for round in range(1, 12):
        model = model - mean(rule, updates(torch.zeros(4, DIM), round))
        nodes = round.bit_count() if round <= 8 else 1 + (round - 8).bit_count()
        assert model.std().item() == pytest.approx(unit * math.sqrt(nodes), rel=0.02)


def test_without_noise_it_averages_clipped_updates_over_the_expected_cohort():
    rule = started(dim=2, noise_multiplier=0.0, clip_norm=1.0)
    found = mean(rule, updates([[3.0, 4.0], [0.3, 0.4]]))
    torch.testing.assert_close(found, torch.tensor([0.9, 1.2], dtype=torch.float64) / 4)


def test_without_noise_and_clipping_it_is_fedavg():
    words = ("model.norm=group", "cohort_sampling=epochs")
    plain = train(make_config(*words))
    done = train(
        make_config("algorithm.name=dp_ftrl", "algorithm.noise_multiplier=0", "algorithm.clip_norm=null", *words)
    )
    assert torch.equal(done.params, plain.params)
    assert metrics.EPSILON not in done.figures()[0]


def test_without_momentum_dp_ftrlm_is_dp_ftrl():
    plain = train(make_config("algorithm.name=dp_ftrl"))
    slow = train(make_config("algorithm.name=dp_ftrlm", "algorithm.momentum_decay=0"))
    assert torch.equal(slow.params, plain.params)
    assert not torch.equal(train(make_config("algorithm.name=dp_ftrlm")).params, plain.params)


def test_epsilon_of_a_tree_is_that_of_as_many_gaussians_as_a_worker_has_nodes():
    """Eight rounds: a worker is in ceil(log2(9)) = 4 nodes; three trees and three rounds of a fourth, 3 * 4 + 2."""
    gaussian = Accountant(2.0, 1000, 10, "none")
    assert TreeAccountant(2.0, 8).epsilon(8, 1e-3) == pytest.approx(gaussian.epsilon(4, 1e-3))
    assert TreeAccountant(2.0, 8).epsilon(3 * 8 + 3, 1e-3) == pytest.approx(gaussian.epsilon(14, 1e-3))
    assert TreeAccountant(2.0, 1).epsilon(5, 1e-3) == pytest.approx(gaussian.epsilon(5, 1e-3))  # S = N
    assert TreeAccountant(0.0, 8).epsilon(1, 1e-3) == math.inf
    spent = [TreeAccountant(1.0, 5).epsilon(rounds, 1e-3) for rounds in range(20)]
    assert spent == sorted(spent)


def test_epsilon_is_the_packages_own():
    own = dp_accounting.rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    own.compose(dp_accounting.SelfComposedDpEvent(dp_accounting.SingleEpochTreeAggregationDpEvent(4.0, 100), 10))
    assert TreeAccountant(4.0, 100).epsilon(1000, 1e-5) == pytest.approx(own.get_epsilon(1e-5), rel=0.01)


def test_epsilon_is_logged_every_round_and_is_a_target():
    words = ("algorithm.name=dp_ftrl", "algorithm.delta=0.01", "num_rounds=4", "evaluation.targets=[epsilon>=5]")
    done = train(make_config(*words))
    spent = [row[metrics.EPSILON] for row in done.figures()]
    assert spent == [TreeAccountant(1.0, 2).epsilon(t, 0.01) for t in (1, 2, 3, 4)]
    first = next(round for round, epsilon in enumerate(spent, 1) if epsilon >= 5)
    assert done.module.scoreboard.reached["to_target/epsilon>=5/rounds"] == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cohort_sampling=fixed",), r"cohort_sampling=fixed does not go with algorithm.name=dp_ftrl; .*epochs"),
        (("cohort_sampling=poisson",), r"cohort_sampling=poisson does not go with algorithm.name=dp_ftrl"),
        (("model.norm=batch",), r"model.norm=batch does not go with algorithm.name=dp_ftrl"),
        (("algorithm.clip_norm=null",), r"algorithm.clip_norm=null is not allowed with noise"),
    ],
)
def test_what_would_not_be_private_is_refused(words, message):
    with pytest.raises(UserError, match=message):
        make_config("algorithm.name=dp_ftrl", *words)


@pytest.mark.parametrize(("workers", "cohort"), [(10, 5), (10, 4), (7, 7), (5, 1)])
def test_in_an_epoch_every_worker_is_asked_once(workers, cohort):
    pool = WorkerPool(workers, cohort, make_config().availability, 0, "epochs")
    length = math.ceil(workers / cohort)
    orders = []
    for epoch in range(3):
        rounds = [pool.sample(epoch * length + place + 1).sampled for place in range(length)]
        assert all(len(sampled) == cohort for sampled in rounds[:-1])
        orders.append(np.concatenate(rounds))
        assert sorted(orders[-1]) == list(range(workers))
    assert any((orders[0] != order).any() for order in orders[1:])


def test_who_is_offline_misses_the_turn():
    """At most once in an epoch, also where workers come and go."""
    config = make_config("availability.name=markov", "availability.leave_probability=0.5")
    pool = WorkerPool(12, 4, config.availability, 0, "epochs")
    asked = [pool.sample(round).sampled for round in range(1, 10)]
    assert sum(map(len, asked)) < 36
    for epoch in range(3):
        found = np.concatenate(asked[3 * epoch : 3 * epoch + 3])
        assert len(found) == len(set(found))
