"""Faulty workers: injected as asked, rejected or fatal, never averaged away."""

import math

import pytest
import torch

from fl_platform.runs import metrics
from tests.federations import make_config, train


def run(*args):
    return train(make_config("cohort_size=6", "num_rounds=4", "faults.probability=0.5", *args))


def test_a_nan_update_ends_the_run_as_diverged_and_is_not_applied():
    done = run("faults.kind=nan", "algorithm.name=gradma")
    first = next(row for row in done.module.history if row[metrics.FAULTY_WORKERS])
    assert done.module.scoreboard.diverged_round == first[metrics.ROUND] == len(done.module.history)
    assert bool(torch.isfinite(done.params).all())
    assert math.isnan(first[metrics.UPDATE_NORM])
    assert metrics.TEST_ACCURACY not in first


@pytest.mark.parametrize("name", ["fedavg", "gradma", "scaffold", "mifam"])
def test_rejected_workers_leave_no_trace(name):
    args = (f"algorithm.name={name}", "faults.reject_nonfinite=true")
    done = run("faults.kind=nan", *args)
    assert done.module.scoreboard.diverged_round is None
    assert [row[metrics.REJECTED_WORKERS] for row in done.module.history] == [
        row[metrics.FAULTY_WORKERS] for row in done.module.history
    ]
    assert sum(row[metrics.REJECTED_WORKERS] for row in done.module.history) > 0
    assert bool(torch.isfinite(done.params).all())


def test_a_round_without_a_sound_worker_changes_nothing():
    done = run("faults.kind=nan", "faults.probability=1", "faults.reject_nonfinite=true")
    assert torch.equal(done.params, done.module.network.initial_params.double())
    assert [row[metrics.REJECTED_WORKERS] for row in done.module.history] == [6] * 4


def test_sign_flips_of_everybody_reverse_the_first_round():
    sound = train(make_config("cohort_size=6", "num_rounds=1"))
    flipped = train(make_config("cohort_size=6", "num_rounds=1", "faults.kind=sign_flip", "faults.probability=1"))
    start = sound.module.network.initial_params.double()
    assert torch.allclose(flipped.params - start, start - sound.params, atol=1e-12)


def test_zero_updates_of_everybody_leave_the_model():
    done = run("faults.kind=zeros", "faults.probability=1")
    assert torch.equal(done.params, done.module.network.initial_params.double())


def test_huge_updates_are_multiplied():
    sound = train(make_config("cohort_size=6", "num_rounds=1"))
    huge = train(
        make_config("cohort_size=6", "num_rounds=1", "faults.kind=huge", "faults.probability=1", "faults.scale=10")
    )
    start = sound.module.network.initial_params.double()
    assert torch.allclose(huge.params - start, 10 * (sound.params - start), atol=1e-10)


def test_faults_are_fixed_by_the_seed():
    assert torch.equal(run("faults.kind=sign_flip").params, run("faults.kind=sign_flip").params)
