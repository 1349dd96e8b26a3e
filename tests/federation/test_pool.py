"""Who is sampled and who reports: distributions, determinism, and what resuming needs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fl_platform.config.groups import AvailabilityConfig
from fl_platform.federation.pool import WorkerPool


def pool(name="always", workers=20, cohort=5, seed=0, **probabilities):
    return WorkerPool(workers, cohort, AvailabilityConfig(name=name, **probabilities), seed)


@given(st.integers(1, 40), st.data(), st.integers(0, 100), st.integers(1, 1000))
def test_a_cohort_is_distinct_complete_and_a_function_of_seed_and_round(workers, data, seed, round):
    size = data.draw(st.integers(1, workers))
    cohort = pool(workers=workers, cohort=size, seed=seed).sample(round)
    assert len(set(cohort.sampled.tolist())) == size
    assert set(cohort.sampled.tolist()) <= set(range(workers))
    assert np.array_equal(cohort.sampled, cohort.reporting)
    assert np.array_equal(cohort.sampled, pool(workers=workers, cohort=size, seed=seed).sample(round).sampled)


def test_every_worker_is_sampled_equally_often():
    sampler = pool(workers=10, cohort=3)
    counts = np.bincount(np.concatenate([sampler.sample(round).sampled for round in range(1, 3001)]), minlength=10)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_another_seed_or_round_gives_another_cohort():
    cohorts = {tuple(pool(seed=seed).sample(round).sampled) for seed in range(3) for round in range(1, 4)}
    assert len(cohorts) == 9


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_bernoulli_failures_have_their_probability_and_leave_the_cohorts_alone(probability):
    failing, always = pool("bernoulli", failure_probability=probability), pool()
    reports = 0
    for round in range(1, 1001):
        cohort = failing.sample(round)
        assert np.array_equal(cohort.sampled, always.sample(round).sampled)  # runs stay paired
        assert set(cohort.reporting) <= set(cohort.sampled)
        assert np.array_equal(cohort.reporting, [worker for worker in cohort.sampled if worker in cohort.reporting])
        reports += len(cohort.reporting)
    assert abs(reports / 5000 - (1 - probability)) < 5 * np.sqrt(probability * (1 - probability) / 5000) + 1e-12


def test_markov_reaches_its_stationary_share_and_samples_only_those_online():
    sampler = pool("markov", workers=400, cohort=400, leave_probability=0.2, return_probability=0.3)
    sizes = []
    for round in range(1, 301):
        cohort = sampler.sample(round)
        assert set(cohort.sampled) == set(np.flatnonzero(sampler.state_dict()["online"]))
        sizes.append(len(cohort.sampled))
    assert abs(np.mean(sizes[50:]) / 400 - 0.3 / (0.2 + 0.3)) < 0.02


def test_markov_absence_lasts_geometrically():
    sampler = pool("markov", workers=500, cohort=1, leave_probability=0.1, return_probability=0.25)
    states = []
    for round in range(1, 201):
        sampler.sample(round)
        states.append(sampler.state_dict()["online"].numpy())
    was, now = np.array(states[:-1]), np.array(states[1:])
    assert abs((was & ~now).sum() / was.sum() - 0.1) < 0.01
    assert abs((~was & now).sum() / (~was).sum() - 0.25) < 0.015


def test_nobody_online_gives_an_empty_cohort():
    cohort = pool("markov", leave_probability=1.0, return_probability=0.0).sample(1)
    assert len(cohort.sampled) == len(cohort.reporting) == 0


@pytest.mark.parametrize("name", ["always", "bernoulli", "markov"])
def test_a_pool_restored_goes_on_as_the_one_saved(name):
    whole, half = pool(name), pool(name)
    expected = [whole.sample(round).reporting.tolist() for round in range(1, 11)]
    got = [half.sample(round).reporting.tolist() for round in range(1, 6)]
    restored = pool(name)
    restored.load_state_dict(half.state_dict())
    got += [restored.sample(round).reporting.tolist() for round in range(6, 11)]
    assert got == expected
