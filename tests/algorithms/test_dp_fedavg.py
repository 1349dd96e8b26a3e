"""DP-FedAvg: its closed forms and edges, the accountant against known values, and what may be claimed of a sampler."""

import dataclasses
import math

import dp_accounting.rdp
import numpy as np
import pytest
import torch

from fl_platform.algorithms import accountant
from fl_platform.algorithms.accountant import Accountant
from fl_platform.algorithms.base import Federation, Updates
from fl_platform.algorithms.coordinate_rules import Median
from fl_platform.algorithms.dp_fedavg import DpFedAvg
from fl_platform.algorithms.fedcm import FedCM
from fl_platform.algorithms.gradma import GradMAS
from fl_platform.algorithms.mime import Mime
from fl_platform.algorithms.scaffold import Scaffold
from fl_platform.errors import UserError
from fl_platform.federation.pool import WorkerPool
from fl_platform.models.flat import Layout
from fl_platform.runs import metrics
from tests.algorithms.trajectories import watching
from tests.federations import make_config, train

CPU = torch.device("cpu")
PRIVATE = {"delta": 0.01, "amplification": "none"}


def started(dim, cohort_size=4, **fields):
    """DP-FedAvg in a federation of 100 workers."""
    algorithm = DpFedAvg(delta=0.01, amplification="none", **fields)
    layout = Layout(("x",), (torch.Size([dim]),))
    algorithm.start(Federation(None, layout, 100, cohort_size, 1, 0, CPU, torch.float64))
    return algorithm


def updates(rows, round=1):
    delta = torch.as_tensor(rows, dtype=torch.float64)
    weights = torch.full((len(delta),), 1 / max(len(delta), 1), dtype=torch.float64)
    workers, steps = np.arange(len(delta)), np.full(len(delta), 5)
    return Updates(round, workers, delta, weights, weights, {}, torch.zeros(delta.shape[1]), steps, 0.1, 0.0)


def mean(rule, received):
    """What the server descends along."""
    return rule.server_direction(rule.receive_updates(received))


def dp(*args, name="dp_fedavg"):
    return train(make_config(f"algorithm.name={name}", *args))


@pytest.mark.parametrize("aggregation", ["uniform", "samples"])
def test_without_noise_and_clipping_it_is_fedavg(aggregation):
    words = ("algorithm.noise_multiplier=0", "algorithm.clip_norm=null", f"aggregation={aggregation}")
    plain = train(make_config("model.norm=group"))
    done = dp(*words)
    assert torch.equal(done.params, plain.params)
    assert metrics.EPSILON not in done.figures()[0]


def test_without_noise_it_averages_clipped_updates_over_the_expected_cohort():
    rule = started(2, cohort_size=4, noise_multiplier=0.0, clip_norm=1.0)
    found = mean(rule, updates([[3.0, 4.0], [0.3, 0.4]]))
    torch.testing.assert_close(found, torch.tensor([0.9, 1.2], dtype=torch.float64) / 4)


def test_noise_has_the_deviation_of_the_paper_and_its_round():
    """z C / S in every coordinate, whoever reports."""
    rule = started(200_000, cohort_size=4, noise_multiplier=1.5, clip_norm=0.2)
    first, again, later, alone = (
        mean(rule, updates(torch.zeros(count, 200_000), round)) for count, round in ((4, 1), (4, 1), (4, 2), (0, 3))
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    for noise in (first, later, alone):
        assert noise.std().item() == pytest.approx(1.5 * 0.2 / 4, rel=0.01)
    assert rule.rounds_spent == 4


def test_adaptive_clipping_finds_the_quantile():
    """Norms 1, 2, ..., 20 and gamma = 0.5, without noise: C ends where half of them are below."""
    rule = started(1, cohort_size=20, noise_multiplier=0.0, clip_norm=0.1, clipping="adaptive", count_noise=1.0)
    norms = torch.arange(1.0, 21.0)[:, None]
    first = rule.clip
    mean(rule, updates(norms))
    assert rule.clip == pytest.approx(first * math.exp(-0.2 * (0 - 0.5)))
    for round in range(2, 200):
        mean(rule, updates(norms, round))
    assert 9 < rule.clip < 12


def test_adaptive_clipping_divides_the_noise():
    """1 / z^2 = 1 / z_d^2 + 1 / (2 sigma_b)^2: Andrew et al., theorem 1."""
    rule = started(1, noise_multiplier=0.8, clipping="adaptive", count_noise=1.3)
    assert rule.update_noise**-2 + (2 * 1.3) ** -2 == pytest.approx(0.8**-2)
    assert rule.update_noise > 0.8


def test_momentum_acts_on_the_noisy_mean():
    plain, slow = (
        dp("algorithm.noise_multiplier=0.1", "num_rounds=1", name=name) for name in ("dp_fedavg", "dp_fedavgm")
    )
    assert torch.equal(plain.params, slow.params)


def test_epsilon_of_the_gaussian_mechanism_is_between_its_bounds():
    """One round with z = 2: the exact value, from the normal distribution, is the lower bound of any accountant."""
    z, delta = 2.0, 1e-5
    cdf = torch.special.ndtr

    def exact_delta(eps):
        a, b = torch.tensor(0.5 / z - eps * z).double(), torch.tensor(-0.5 / z - eps * z).double()
        return float(cdf(a) - math.exp(eps) * cdf(b))

    low, high = 0.0, 10.0
    for _ in range(60):
        low, high = ((low + high) / 2, high) if exact_delta((low + high) / 2) > delta else (low, (low + high) / 2)
    found = Accountant(z, 100, 10, "none").epsilon(1, delta)
    assert low < found < 1.25 * low


def test_epsilon_of_poisson_sampling_is_the_packages_own():
    """q = 256 / 60000, z = 1.1, 60 epochs, composed in one call with the package's orders."""
    steps = 60 * 60_000 // 256
    own = dp_accounting.rdp.RdpAccountant(
        [1 + x / 10 for x in range(7, 100)] + list(range(11, 64)), dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    own.compose(dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(1.1)), steps)
    found = Accountant(1.1, 60_000, 256, "poisson").epsilon(steps, 1e-5)
    assert found == pytest.approx(own.get_epsilon(1e-5), rel=0.01)


def test_epsilon_grows_with_rounds_and_shrinks_with_noise_and_sampling():
    spent = [Accountant(1.0, 1000, 10, "poisson").epsilon(rounds, 1e-3) for rounds in (0, 1, 10, 100)]
    assert spent == sorted(spent)
    assert spent[0] == 0
    assert Accountant(2.0, 1000, 10, "poisson").epsilon(100, 1e-3) < spent[-1]
    kinds = {kind: Accountant(4.0, 1000, 10, kind).epsilon(100, 1e-3) for kind in accountant.AMPLIFICATIONS}
    assert kinds["poisson"] < kinds["fixed"] < kinds["none"]
    assert Accountant(0.0, 1000, 10, "poisson").epsilon(1, 1e-3) == math.inf


def test_epsilon_is_logged_every_round():
    done = dp("cohort_sampling=poisson", "algorithm.delta=0.01")
    expected = Accountant(1.0, 6, 3, "poisson")
    assert [row[metrics.EPSILON] for row in done.figures()] == [expected.epsilon(t, 0.01) for t in (1, 2, 3)]
    assert {metrics.CLIP_NORM, metrics.CLIPPED_SHARE} <= done.figures()[0].keys()


def test_a_budget_is_a_target_also_between_evaluations():
    words = ("cohort_sampling=poisson", "algorithm.delta=0.01", "num_rounds=6", "evaluation.every=5")
    done = dp(*words, "evaluation.targets=[epsilon>=2.5]")
    spent = [row[metrics.EPSILON] for row in done.figures()]
    first = next(round for round, epsilon in enumerate(spent, 1) if epsilon >= 2.5)
    assert 1 < first < 6
    assert done.module.scoreboard.reached["to_target/epsilon>=2.5/rounds"] == first
    with pytest.raises(UserError, match=r"'epsilon<=8' holds from the start; write 'epsilon>=8'"):
        make_config("evaluation.targets=[epsilon<=8]")


def test_a_round_without_workers_still_has_noise():
    done = dp("availability.name=bernoulli", "availability.failure_probability=1", "num_rounds=2")
    start = done.module.network.initial_params.double()
    moved = done.params - start
    assert moved.std().item() == pytest.approx(math.sqrt(2) / 3, rel=0.05)
    assert done.figures()[-1][metrics.EPSILON] > 0


@pytest.mark.parametrize(
    ("words", "claimed"),
    [
        ((), "fixed"),
        (("cohort_sampling=poisson",), "poisson"),
        (("cohort_sampling=poisson", "availability.name=markov"), "none"),
        (("availability.name=bernoulli",), "none"),
        (("algorithm.amplification=none",), "none"),
    ],
)
def test_only_what_the_sampler_gives_is_claimed(words, claimed):
    assert make_config("algorithm.name=dp_fedavg", *words).algorithm["amplification"] == claimed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("model.norm=batch",),
            r"model.norm=batch does not go with algorithm.name=dp_fedavg; it needs .*group",
        ),
        (("algorithm.amplification=poisson",), r"amplification=poisson is not what the sampler gives; allowed: fixed"),
        (("algorithm.clip_norm=null",), r"algorithm.clip_norm=null is not allowed with noise"),
        (
            ("algorithm.clipping=adaptive", "algorithm.count_noise=0.5"),
            r"algorithm.count_noise=0.5 is not allowed; it must be more than half of algorithm.noise_multiplier=1",
        ),
    ],
)
def test_what_would_not_be_private_is_refused(words, message):
    with pytest.raises(UserError, match=message):
        make_config("algorithm.name=dp_fedavg", *words)


def test_a_missing_accountant_is_one_sentence(monkeypatch):
    monkeypatch.setattr(accountant, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs the package dp-accounting; .*fl_platform\[privacy\]"):
        make_config("algorithm.name=dp_fedavg")
    make_config("algorithm.name=dp_fedavg", "algorithm.noise_multiplier=0")


def test_poisson_cohorts_have_the_size_they_should_on_average():
    pool = WorkerPool(100, 10, make_config().availability, 0, "poisson")
    sizes = np.array([len(pool.sample(round).sampled) for round in range(1, 2001)])
    assert sizes.mean() == pytest.approx(10, abs=0.3)
    assert sizes.std() == pytest.approx(3, abs=0.2)


def test_poisson_cohorts_need_room_in_the_memory():
    with pytest.raises(UserError, match=r"algorithm.memory_size=5 is not allowed with cohort_sampling=poisson"):
        make_config("algorithm.name=gradma", "cohort_sampling=poisson", "algorithm.memory_size=5")


@dataclasses.dataclass(eq=False)
class DpFedCM(FedCM, DpFedAvg):
    """Workers mix in the last round's direction, which the server has from the noisy mean."""


@dataclasses.dataclass(eq=False)
class DpMedian(Median, DpFedAvg):
    """A rule that does not ask the next class in line."""


def test_whatever_a_server_computes_it_computes_from_the_noisy_mean():
    """FedCM sends every worker the mean direction of the last round: it must not be that of the raw updates."""
    words = ("model.norm=group", "num_rounds=1", "local_steps=4")
    done = train(make_config("algorithm.name=dp_fedavg", *words), algorithm=watching(DpFedCM, **PRIVATE))
    [seen] = done.algorithm.server_steps
    assert len(seen.updates.delta) == 1
    torch.testing.assert_close(done.algorithm.last_direction, seen.direction / (4 * 0.1))
    raw = train(make_config("algorithm.name=fedcm", *words), algorithm=watching(FedCM))
    assert (done.algorithm.last_direction - raw.algorithm.last_direction).std() > 0.1


def test_a_rule_that_asks_no_one_is_private_too():
    done = train(make_config("algorithm.name=dp_fedavg", "num_rounds=1"), algorithm=DpMedian(**PRIVATE))
    assert metrics.EPSILON in done.figures()[0]
    assert (done.params - done.module.network.initial_params.double()).std().item() == pytest.approx(1 / 3, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Scaffold, "sends control_change beside the update, which has no noise"),
        (Mime, "asks workers about x_t first, and their answers have no noise"),
        (GradMAS, "follows single workers, of which a private server sees none"),
    ],
)
def test_what_tells_more_than_the_noisy_mean_is_refused(kind, message):
    joined = dataclasses.dataclass(eq=False)(type("Joined", (kind, DpFedAvg), {}))
    with pytest.raises(UserError, match=message):
        joined().refuse_what_has_no_noise()
