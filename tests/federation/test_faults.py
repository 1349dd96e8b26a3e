"""Faulty workers: injected as asked, rejected or fatal, never averaged away."""

import math

import numpy as np
import pytest
import torch

import fl_platform
from fl_platform.data.partition import Partition
from fl_platform.engines.work import LocalResult
from fl_platform.errors import UserError
from fl_platform.federation.faults import alie_deviations, faulty, fixed_workers, flip_labels, inject_faults
from fl_platform.runs import metrics
from tests.federations import make_config, make_module, train


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


@pytest.mark.parametrize("name", ["mifa", "fedspeed"])
def test_what_a_method_sends_instead_of_its_update_is_faulty(name):
    """Zeros from everybody: the server of MIFA and FedSpeed has nothing to move by."""
    done = train(make_config(f"algorithm.name={name}", "faults.kind=zeros", "faults.probability=1"))
    assert torch.equal(done.params, done.module.network.initial_params.double())


def test_faults_are_fixed_by_the_seed():
    assert torch.equal(run("faults.kind=sign_flip").params, run("faults.kind=sign_flip").params)


def inject(kind, *args, workers=10, probability="0.3"):
    """Ten updates with rows 0..9 in every coordinate, before and after the faults of round 1."""
    config = make_config(f"faults.kind={kind}", f"faults.probability={probability}", *args, workers=workers)
    delta = torch.arange(workers, dtype=torch.float64)[:, None].expand(-1, 4).clone()
    before = LocalResult(
        np.arange(workers), delta, delta, delta[:, 0], {}, np.ones(workers, int), np.ones(workers, int)
    )
    after, count = inject_faults(before, config, 1)
    changed = (after.delta != delta).any(1)
    return config, delta, after.delta, changed, count


def test_fixed_workers_are_a_share_of_all_and_the_same_in_every_round():
    config, _, after, changed, count = inject("nan", "faults.workers=fixed", "cohort_size=10")
    assert sorted(fixed_workers(config)) == np.flatnonzero(changed).tolist()
    assert count == 3 == after.isnan().all(1).sum()
    for round in (1, 2, 7):
        assert np.array_equal(
            faulty(np.array([9, 3, 5, 0]), config, round), np.isin([9, 3, 5, 0], fixed_workers(config))
        )
    other = make_config("faults.kind=nan", "faults.probability=0.3", "faults.workers=fixed", "seed=1", workers=10)
    assert sorted(fixed_workers(other)) != sorted(fixed_workers(config))


def test_random_workers_differ_between_rounds():
    config = make_config("faults.kind=nan", "faults.probability=0.5", workers=10)
    drawn = [faulty(np.arange(10), config, round).tolist() for round in range(1, 6)]
    assert len(set(map(tuple, drawn))) > 1


def test_gaussian_noise_has_its_deviation_and_its_seed():
    config = make_config("faults.kind=gaussian", "faults.probability=1", "faults.std=3")
    delta = torch.ones(3, 20_000, dtype=torch.float64)
    result = LocalResult(np.arange(3), delta, delta, delta[:, 0], {}, np.ones(3, int), np.ones(3, int))
    first, second, later = (inject_faults(result, config, round)[0].delta for round in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, later)
    assert first.std().item() == pytest.approx(3, rel=0.02)
    assert abs(first.mean().item()) < 0.05


def test_same_value_replaces_every_coordinate():
    _, delta, after, changed, count = inject("same_value", "faults.value=-2", "faults.workers=fixed")
    assert count == 3
    assert after[changed].eq(-2).all()
    assert torch.equal(after[~changed], delta[~changed])


def test_a_little_is_enough_stays_within_the_deviations_of_the_sound():
    _, delta, after, changed, _ = inject("alie", "faults.deviations=1.5", "faults.workers=fixed")
    sound = delta[~changed]
    expected = sound.mean(0) - 1.5 * sound.std(0, correction=0)
    assert torch.allclose(after[changed], expected.expand(3, -1), rtol=0, atol=1e-12)


def test_the_largest_hidden_deviation_is_the_papers():
    """Baruch et al., section 3.3: n = 50, m = 24 need s = 2 supporters, Phi^-1(24 / 26) = 1.43."""
    assert alie_deviations(50, 24) == pytest.approx(1.43, abs=0.005)
    assert alie_deviations(10, 0) == 0 == alie_deviations(10, 6)


def test_flipped_labels_are_those_of_the_faulty_workers():
    config = make_config("faults.kind=label_flip", "faults.workers=fixed", "faults.probability=0.34", workers=3)
    labels, partition = torch.tensor([0, 1, 2, 0, 1, 2]), Partition(np.arange(6), np.array([0, 2, 4, 6]))
    [worker] = fixed_workers(config)
    flipped = flip_labels(labels, partition, 3, config)
    own = partition.of(worker)
    assert torch.equal(flipped[own], 2 - labels[own])
    others = np.setdiff1d(np.arange(6), own)
    assert torch.equal(flipped[others], labels[others])


def test_samples_that_workers_are_scored_on_keep_their_labels():
    keys = ("faults.kind=label_flip", "faults.workers=fixed", "faults.probability=1", "data.worker_test_fraction=0.3")
    right, flipped = (make_module(make_config(*keys[first:])) for first in (3, 0))
    assert right.worker_tests.of_workers is not None
    tests, trained = right.worker_tests.of_workers.indices, right.members.partition.indices
    assert np.array_equal(flipped.worker_tests.of_workers.indices, tests)
    before, after = (module._sets[0].labels for module in (right, flipped))
    assert torch.equal(after[tests], before[tests])
    assert torch.equal(after[trained], 2 - before[trained])


def test_flipped_labels_spoil_a_run_and_are_counted(tmp_path):
    def final(**keys):
        result = fl_platform.run(
            num_rounds=3,
            omega=100,
            tracking={"mode": "disabled"},
            output={"dir": str(tmp_path)},
            progress=False,
            **keys,
        )
        return result.summary[metrics.FINAL_ACCURACY], result.rounds

    accuracy, rounds = final(faults={"kind": "label_flip", "workers": "fixed", "probability": 1})
    sound, _ = final()
    assert rounds[metrics.FAULTY_WORKERS].tolist() == [10, 10, 10]
    assert accuracy < 0.2 < sound


def test_flipped_labels_need_fixed_workers():
    with pytest.raises(UserError, match=r"faults.kind=label_flip needs faults.workers=fixed, found random"):
        make_config("faults.kind=label_flip")
