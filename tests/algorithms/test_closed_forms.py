"""Exact trajectories on f_i(x) = 1/2 |x - a_i|^2.

With local rate h, I steps along x - a contract the distance to a by rho = (1 - h)^I, so a FedAvg worker sends
d_i = (1 - rho) (x_t - a_i). Below, e_t = x_t - mean(a), everybody takes part unless said otherwise, and methods that
are linear become a small matrix acting on (e, server state), whose powers are the trajectory.
"""

import numpy as np
import pytest
import torch

from fl_platform.runs import metrics
from tests.algorithms.trajectories import as_points, run_quadratics

STEPS, RATE, SERVER_RATE, ROUNDS = 4, 0.15, 0.8, 6
ARGUMENTS = (f"local_steps={STEPS}", f"local_lr={RATE}", f"server_lr={SERVER_RATE}", f"num_rounds={ROUNDS}")
RHO = (1 - RATE) ** STEPS
TARGETS = np.random.default_rng(3).integers(0, 256, (5, 4)).astype(np.uint8)


def powers(matrix: list[list[float]], errors: torch.Tensor) -> torch.Tensor:
    """e_0, e_1, ... of (e, state)_{t+1} = matrix (e, state)_t with the state zero at first."""
    step = torch.tensor(matrix, dtype=torch.float64)
    return torch.stack([torch.linalg.matrix_power(step, t)[0, 0] * errors for t in range(ROUNDS + 1)])


def fedavg() -> list[list[float]]:
    """e' = e - server_lr (1 - rho) e."""
    return [[1 - SERVER_RATE * (1 - RHO)]]


def fedavgm(beta: float = 0.6) -> list[list[float]]:
    """m' = beta m + (1 - rho) e,  e' = e - server_lr m'."""
    k = 1 - RHO
    return [[1 - SERVER_RATE * k, -SERVER_RATE * beta], [k, beta]]


def fedprox(mu: float = 0.5) -> list[list[float]]:
    """Worker i minimises around (a_i + mu x_t) / (1 + mu) with curvature 1 + mu: d_i = k (x_t - a_i) with k below."""
    k = (1 - (1 - RATE * (1 + mu)) ** STEPS) / (1 + mu)
    return [[1 - SERVER_RATE * k]]


def feddyn(alpha: float = 0.3) -> list[list[float]]:
    """Displacement of worker i: k (a_i - x_t - alpha u_i); u the mean of u_i.

    u' = u + k (-e - alpha u),  e' = e + server_lr (k (-e - alpha u) + u').
    """
    k = (1 - (1 - RATE * (1 + alpha)) ** STEPS) / (1 + alpha)
    move, mean = [-k, -k * alpha], [-k, 1 - k * alpha]
    return [[1 + SERVER_RATE * (move[0] + mean[0]), SERVER_RATE * (move[1] + mean[1])], mean]


def mimelite(beta: float = 0.6) -> list[list[float]]:
    """Direction (1 - beta)(x - a_i) + beta s contracts to a_i - s beta / (1 - beta) by (1 - local_lr (1 - beta))^I.

    e' = e - server_lr k (e + s beta / (1 - beta)),  s' = (1 - beta) e + beta s.
    """
    k = SERVER_RATE * (1 - (1 - RATE * (1 - beta)) ** STEPS)
    return [[1 - k, -k * beta / (1 - beta)], [1 - beta, beta]]


@pytest.mark.parametrize(
    ("name", "fields", "matrix"),
    [
        ("fedavg", (), fedavg()),
        ("fedavgm", ("momentum_decay=0.6",), fedavgm()),
        ("fedprox", ("mu=0.5",), fedprox()),
        ("scaffold", (), fedavg()),  # the corrections have mean zero, and so do their effects on a linear gradient
        ("feddyn", ("alpha=0.3",), feddyn()),
        ("mimelite", ("momentum_decay=0.6",), mimelite()),
        ("mifa", (), fedavg()),
        ("mifam", ("momentum_decay=0.6",), fedavgm()),
    ],
)
def test_linear_methods_follow_the_powers_of_a_matrix(name, fields, matrix):
    done, a = run_quadratics(name, *ARGUMENTS, *(f"algorithm.{field}" for field in fields), targets=TARGETS)
    errors = done.rounds - a.mean(0)
    assert torch.allclose(errors, powers(matrix, errors[0]), rtol=0, atol=1e-13)


def test_scaffold_workers_come_to_agree():
    """u_i = c_i - c obeys u' = (1 - k) u - k (a_i - mean a), k = (1 - rho) / (I local_lr), from u = 0.

    So worker i heads for a_i + u_i = mean(a) + (1 - k)^t (a_i - mean a): the spread of what workers send vanishes
    geometrically, while FedAvg's never does.
    """
    done, a = run_quadratics("scaffold", *ARGUMENTS, targets=TARGETS)
    k = (1 - RHO) / (STEPS * RATE)
    for t, seen in enumerate(done.algorithm.server_steps):
        goals = a.mean(0) + (1 - k) ** t * (a[seen.updates.workers] - a.mean(0))
        assert torch.allclose(seen.updates.delta, (1 - RHO) * (seen.before - goals), rtol=0, atol=1e-13)


def test_mifa_averages_updates_of_different_ages():
    """Partial participation: d = 1/N sum_i (1 - rho) (x_{t(i)} - a_i), t(i) the last round of worker i."""
    done, a = run_quadratics("mifa", *ARGUMENTS, "cohort_size=2", targets=TARGETS)
    latest = torch.zeros_like(a)
    for t, workers in enumerate(done.logged(metrics.COHORT)):
        latest[workers] = (1 - RHO) * (done.rounds[t] - a[workers])
        assert torch.allclose(done.rounds[t + 1], done.rounds[t] - SERVER_RATE * latest.mean(0), rtol=0, atol=1e-13)
    assert 2 < len(set(np.concatenate(done.logged(metrics.COHORT)))) < 5  # some never report


def test_sample_weights_move_the_fixed_point_to_the_mean_over_samples():
    """e' = e - server_lr (1 - rho) e around sum n_i a_i / sum n_i instead of mean(a)."""
    sizes = (2, 7, 3, 2, 6)
    done, a = run_quadratics("fedavg", *ARGUMENTS, "aggregation=samples", targets=TARGETS, sizes=sizes)
    centre = torch.tensor(sizes, dtype=torch.float64) @ a / sum(sizes)
    errors = done.rounds - centre
    assert torch.allclose(errors, powers(fedavg(), errors[0]), rtol=0, atol=1e-13)


def test_gradma_w_takes_a_single_local_step():
    """Every later gradient is a multiple of the first, opposite to the drift, and is projected to zero.

    GradMA-W with I steps is therefore FedAvg with one, whatever I is (x_{-1} = x_t).
    """
    projected, a = run_quadratics("gradma_w", *ARGUMENTS, "algorithm.previous_model=global", targets=TARGETS)
    single, _ = run_quadratics("fedavg", *ARGUMENTS, "local_steps=1", targets=TARGETS)
    assert torch.allclose(projected.rounds, single.rounds, rtol=0, atol=1e-13)
    start = projected.rounds[0]
    assert torch.allclose(projected.rounds[1], start - SERVER_RATE * RATE * (start - a.mean(0)), rtol=0, atol=1e-13)


def test_gradma_s_stands_still_between_two_workers():
    """On the segment from a_1 to a_2 the updates are opposite, and no direction along it agrees with both.

    The momentum lies on the same line, so it is projected to zero: here no worker gains without the other losing.
    Off the segment GradMA-S moves, and FedAvg moves on it.
    """
    pair = TARGETS[:2]
    a = as_points(pair)
    between = 0.3 * a[0] + 0.7 * a[1]
    args = (*ARGUMENTS, "algorithm.memory_size=2")
    still, _ = run_quadratics("gradma_s", *args, targets=pair, start=between)
    assert torch.allclose(still.rounds, between.expand(ROUNDS + 1, -1), rtol=0, atol=1e-12)
    assert set(still.logged(metrics.QP_FROZEN_TENSORS)) == {1.0}
    beside, _ = run_quadratics("gradma_s", *args, targets=pair)
    fedavg, _ = run_quadratics("fedavg", *ARGUMENTS, targets=pair, start=between)
    for done in (beside, fedavg):
        assert (done.rounds[1] - done.rounds[0]).norm() > 0.05


def test_gradma_s_of_identical_workers_drops_momentum_that_overshoots():
    """R13: with momentum_decay != memory_decay conflicts occur even among identical workers.

    Everything is collinear: D = beta_2 D + d and m = beta_1 m~ + d on a line. Once the momentum, longer-lived than the
    memory, carries x past a, d turns round while m does not, and the projection of a vector opposite to an anchor on
    its own line is zero: the momentum is dropped. With beta_1 = beta_2 D equals m and nothing is ever corrected.
    """
    targets = np.repeat(TARGETS[:1], 3, axis=0)
    args = (*ARGUMENTS, "num_rounds=30", "algorithm.momentum_decay=0.9", "algorithm.memory_size=3")
    done, a = run_quadratics("gradma_s", *args, "algorithm.memory_decay=0.1", targets=targets)
    error = done.rounds[0] - a[0]
    momentum = memory = torch.zeros_like(error)
    drops = 0
    for t in range(30):
        update = (1 - RHO) * error
        momentum, memory = 0.9 * momentum + update, 0.1 * memory + update
        if momentum @ memory < 0:
            momentum, drops = torch.zeros_like(momentum), drops + 1
        error = error - SERVER_RATE * momentum
        assert torch.allclose(done.rounds[t + 1] - a[0], error, rtol=0, atol=1e-9)
    assert drops > 0
    together, _ = run_quadratics("gradma_s", *args, "algorithm.memory_decay=0.9", targets=targets)
    fedavgm, _ = run_quadratics("fedavgm", *args[:-1], targets=targets)
    assert torch.allclose(together.rounds, fedavgm.rounds, rtol=0, atol=1e-13)
    assert max(together.logged(metrics.QP_SERVER_ACTIVE)) == 0
