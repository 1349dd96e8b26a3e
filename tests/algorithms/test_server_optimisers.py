"""FedAdam, FedYogi, FedAdagrad, FedExP and FedMom: closed forms, what they reduce to, and other methods' workers."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fl_platform.algorithms import base
from fl_platform.algorithms.fedexp import FedExP
from fl_platform.algorithms.fedopt import FedAdam
from fl_platform.algorithms.fedprox import FedProx
from fl_platform.config.registry import ALGORITHMS
from tests.algorithms.trajectories import run, run_quadratics, watch

STEPS, RATE, SERVER_RATE, ROUNDS = 4, 0.15, 0.3, 5
ARGUMENTS = (f"local_steps={STEPS}", f"local_lr={RATE}", f"server_lr={SERVER_RATE}", f"num_rounds={ROUNDS}")
SENT = 1 - (1 - RATE) ** STEPS  # a FedAvg worker on 1/2 |x - a_i|^2 sends this times x_t - a_i
TARGETS = np.random.default_rng(3).integers(0, 256, (5, 4)).astype(np.uint8)
ADAPTIVE = ("fedadam", "fedyogi", "fedadagrad")


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-12) -> bool:
    return torch.allclose(a, b, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_adaptive_servers_follow_their_recursion(name):
    """On quadratics d = SENT * (x - mean a); squares begin with tau^2."""
    tau, beta1, beta2 = 0.02, 0.7, 0.8
    fields = [f"algorithm.tau={tau}", f"algorithm.first_decay={beta1}"]
    fields += [] if name == "fedadagrad" else [f"algorithm.second_decay={beta2}"]
    done, a = run_quadratics(name, *ARGUMENTS, *fields, targets=TARGETS)
    x, m, v = done.rounds[0], torch.zeros(4, dtype=torch.float64), torch.full((4,), tau**2, dtype=torch.float64)
    for reached in done.rounds[1:]:
        d = SENT * (x - a.mean(0))
        m = beta1 * m + (1 - beta1) * d
        if name == "fedadam":
            v = beta2 * v + (1 - beta2) * d**2
        elif name == "fedyogi":
            v = torch.where(v > d**2, v - (1 - beta2) * d**2, v + (1 - beta2) * d**2)
        else:
            v = v + d**2
        x = x - SERVER_RATE * m / (v.sqrt() + tau)
        assert close(reached, x)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_with_a_large_tau_the_direction_is_that_of_the_momentum(name):
    done = watch(name, "algorithm.tau=1e6", "algorithm.first_decay=0.5")
    momentum = torch.zeros_like(done.params)
    for seen in done.algorithm.server_steps:
        momentum = 0.5 * momentum + 0.5 * seen.updates.mean_delta
        assert torch.nn.functional.cosine_similarity(seen.direction, momentum, dim=0) > 1 - 1e-9
    one = watch("fedadagrad", "algorithm.tau=1e6").algorithm.server_steps[0]
    assert close(one.direction * 2e6, one.updates.mean_delta, 1e-9)  # sqrt(tau^2) + tau: FedAvg with another rate


def test_a_first_step_of_adam_moves_every_coordinate_equally_far():
    """With beta_1 = beta_2 = 0 and a small tau the direction is the sign of the update."""
    args = ("algorithm.first_decay=0", "algorithm.second_decay=0", "algorithm.tau=1e-12")
    seen = watch("fedadam", *args, "num_rounds=1").algorithm.server_steps[0]
    moved = seen.updates.mean_delta.abs() > 1e-6
    assert close(seen.direction[moved], seen.updates.mean_delta.sign()[moved], 1e-5)


def test_fedexp_lengthens_the_step_by_the_disagreement():
    epsilon = 0.01
    done = watch("fedexp", f"algorithm.epsilon={epsilon}", "aggregation=samples")
    rates = []
    for seen in done.algorithm.server_steps:
        delta, weights = seen.updates.delta, seen.updates.weights
        mean = weights @ delta
        rates.append(max(1.0, float(weights @ (delta**2).sum(1) / (2 * (mean @ mean + epsilon)))))
        assert close(seen.direction, rates[-1] * mean)
    assert done.logged("server/extrapolation") == pytest.approx(rates)
    assert max(rates) > 1


def test_fedexp_with_one_worker_or_a_large_epsilon_is_fedavg():
    alone = {"sizes": (30,)}
    assert torch.equal(run("fedexp", "cohort_size=1", **alone).rounds, run("fedavg", "cohort_size=1", **alone).rounds)
    assert torch.equal(run("fedexp", "algorithm.epsilon=1e6").rounds, run("fedavg").rounds)


def test_fedexp_may_score_the_mean_of_the_last_two_models():
    plain, last_two = run("fedexp"), run("fedexp", "algorithm.evaluated=last_two")
    assert torch.equal(plain.rounds, last_two.rounds)
    scored = last_two.algorithm.evaluated_params(last_two.params)
    assert close(scored, last_two.rounds[-2:].mean(0))
    assert plain.logged("test/loss")[-1] != last_two.logged("test/loss")[-1]


def test_fedmom_is_nesterovs_method_as_its_authors_write_it():
    """v_{t+1} = x_t - server_lr d,  x_{t+1} = v_{t+1} + beta (v_{t+1} - v_t)."""
    done, a = run_quadratics("fedmom", *ARGUMENTS, "algorithm.momentum_decay=0.6", targets=TARGETS)
    x = v = done.rounds[0]
    for reached in done.rounds[1:]:
        ahead = x - SERVER_RATE * SENT * (x - a.mean(0))
        x, v = ahead + 0.6 * (ahead - v), ahead
        assert close(reached, x)
    assert torch.equal(run("fedmom", "algorithm.momentum_decay=0").rounds, run("fedavg").rounds)


@pytest.fixture
def combined():
    @dataclass(eq=False)
    class FedProxAdam(FedAdam, FedProx, name="fedprox_adam", label="FedProx + Adam"):
        """FedProx's workers, Adam on the server."""

    @dataclass(eq=False)
    class FedProxExP(FedExP, FedProx, name="fedprox_exp", label="FedProx + ExP"):
        """FedProx's workers, extrapolation on the server."""

    yield
    for name in ("fedprox_adam", "fedprox_exp"):
        del ALGORITHMS._entries[name]


@pytest.mark.usefixtures("combined")
def test_a_server_optimiser_serves_any_workers_by_one_class_line():
    assert base.get("fedprox_adam").kind == "both"  # FedAdam's is the server, FedProx's the workers
    args = ("algorithm.tau=0.1", "server_lr=0.1")
    both = run("fedprox_adam", "algorithm.mu=0.3", *args)
    assert torch.equal(run("fedprox_adam", "algorithm.mu=0", *args).rounds, run("fedadam", *args).rounds)
    assert not close(both.rounds, run("fedadam", *args).rounds, 1e-6)
    prox = run("fedprox", "algorithm.mu=0.3", "num_rounds=1")
    rate = f"server_lr={1e6 * (1 + 0.99**0.5)}"  # of the first step: sqrt(beta_2 tau^2) + tau
    args = ("algorithm.mu=0.3", "algorithm.tau=1e6", "algorithm.first_decay=0", "num_rounds=1", rate)
    assert close(run("fedprox_adam", *args).rounds[1], prox.rounds[1], 1e-6)
    extrapolated = run("fedprox_exp", "algorithm.mu=0.3", "algorithm.epsilon=1e6")
    assert torch.equal(extrapolated.rounds, run("fedprox", "algorithm.mu=0.3").rounds)
