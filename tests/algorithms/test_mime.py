"""Mime: its closed form on quadratics, what it reduces to, and what its first exchange costs."""

import numpy as np
import pytest
import torch

from fl_platform.runs import metrics
from tests.algorithms.trajectories import PLAIN, run, run_quadratics, watch

STEPS, RATE, BETA = 4, 0.15, 0.6
TARGETS = np.random.default_rng(4).integers(0, 256, (5, 4)).astype(np.uint8)


def test_every_worker_goes_the_way_of_the_mean():
    """f_i(x) = 1/2 |x - a_i|^2: the corrected gradient is x_tau - mean a for every worker of the cohort.

    All send d = k (x_t - mean a + s beta / (1 - beta)), k = 1 - (1 - local_lr (1 - beta))^I, and s' = (1 - beta)
    (x_t - mean a) + beta s. The cohort is 3 of 5, so its mean changes from round to round.
    """
    args = (f"local_steps={STEPS}", f"local_lr={RATE}", f"algorithm.momentum_decay={BETA}", "num_rounds=5")
    done, a = run_quadratics("mime", *args, "cohort_size=3", "engine=stacked", targets=TARGETS)
    k, s = 1 - (1 - RATE * (1 - BETA)) ** STEPS, torch.zeros(4, dtype=torch.float64)
    for seen in done.algorithm.server_steps:
        error = seen.before - a[seen.updates.workers].mean(0)
        expected = k * (error + s * BETA / (1 - BETA))
        assert torch.allclose(seen.updates.delta, expected.expand(3, -1), rtol=0, atol=1e-13)
        s = (1 - BETA) * error + BETA * s


def test_workers_agree_on_one_step_whatever_their_batches():
    """Before the first step x_tau = x_t: what is left is a step of gradient descent on the cohort's data."""
    done = watch("mime", "local_steps=1", "algorithm.momentum_decay=0", "local_lr=0.1")
    for seen in done.algorithm.server_steps:
        rows = seen.updates.delta
        assert torch.allclose(rows, rows[:1].expand_as(rows), rtol=0, atol=1e-15)
    lite = watch("mimelite", "local_steps=1", "algorithm.momentum_decay=0", "local_lr=0.1").algorithm.server_steps[0]
    gradient = lite.updates.average(lite.updates.sent["gradient"])  # over all data of the cohort, at the same x_0
    assert torch.allclose(done.algorithm.server_steps[0].updates.delta[0], 0.1 * gradient, rtol=0, atol=1e-15)


def test_a_single_worker_with_one_batch_is_mimelite():
    """c is the worker's own gradient at x_t, and so is g(x_t) where a batch has all its samples."""
    args = ("cohort_size=1", "batch_size=32", "algorithm.momentum_decay=0.6")
    assert torch.allclose(run("mime", *args).rounds, run("mimelite", *args).rounds, rtol=0, atol=1e-13)
    apart = run("mime", PLAIN, "algorithm.momentum_decay=0.6").rounds
    assert not torch.allclose(apart, run("mimelite", "algorithm.momentum_decay=0.6").rounds, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("compression", "uploads"), [("none", 2 * 239 * 4), ("topk", 239 * 4 + 12 * 5)])
def test_both_exchanges_are_counted(compression, uploads):
    """Down x_t, s and c; up the gradient, which is not compressed, and the update: 5 % of 239 with their positions."""
    done = run("mime", "precision=float32", "num_rounds=1", "buffers=server", f"compression.name={compression}",
               *(["compression.fraction=0.05"] if compression == "topk" else []))  # fmt: skip
    assert done.logged(metrics.TOTAL_BYTES) == [3 * (3 * 239 * 4 + uploads)]


@pytest.mark.parametrize("name", ["mime", "mimelite"])
def test_workers_without_a_batch_do_not_spoil_a_pass_over_the_data_of_a_deep_network(name):
    """Padding alone, normalised by a variance of zero in twenty layers, overflows; its gradient counts for nothing."""
    args = ("model.name=resnet20", "model.width=2", "num_rounds=1", "precision=float32", "local_steps=1")
    loop, stacked = (run(name, *args, f"engine={engine}") for engine in ("loop", "stacked"))
    assert torch.allclose(loop.algorithm.momentum, stacked.algorithm.momentum, rtol=0, atol=1e-4)


def test_two_gradients_a_step_and_a_pass_over_the_data():
    """Workers of 5, 9, 20, 7, 12 and 30 samples, batches of 8; a last one of a single sample joins the one before."""
    done = run("mime", "num_rounds=2", "local_steps=3")
    passes = {0: 1, 1: 1, 2: 3, 3: 1, 4: 2, 5: 4}
    for workers, found in zip(done.logged(metrics.COHORT), done.logged(metrics.GRADIENT_PASSES), strict=True):
        assert found == sum(2 * 3 + passes[worker] for worker in workers)
