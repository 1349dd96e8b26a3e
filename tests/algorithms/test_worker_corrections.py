"""Worker corrections outside the paper: closed forms on quadratics or by hand, and what they reduce to."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fl_platform.algorithms.base import LocalBatch
from fl_platform.algorithms.feddecorr import FedDecorr, correlation
from fl_platform.algorithms.fedlc import FedLC
from fl_platform.algorithms.fedntd import FedNTD
from fl_platform.algorithms.fedrs import FedRS
from fl_platform.runs import metrics
from tests.algorithms.trajectories import DROPOUT, run, run_quadratics, watch
from tests.federations import SIZES, images

RATE, SERVER_RATE = 0.15, 0.8
ARGUMENTS = (f"local_lr={RATE}", f"server_lr={SERVER_RATE}", "num_rounds=4")
TARGETS = np.random.default_rng(5).integers(0, 256, (5, 4)).astype(np.uint8)


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-12) -> bool:
    return torch.allclose(a, b, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("fedsam", ("rho=0",)),
        ("fedlc", ("tau=0",)),
        ("fedrs", ("alpha=1",)),
        ("fedntd", ("beta=0",)),
        ("feddecorr", ("beta=0",)),
    ],
)
def test_without_their_correction_they_are_fedavg(name, fields):
    args = [f"algorithm.{field}" for field in fields]
    assert torch.equal(run(name, *args, DROPOUT).rounds, run("fedavg", DROPOUT).rounds)
    small = {"sizes": (3,) * 6}  # so small that workers lack classes
    assert not close(run(name, **small).rounds[1], run("fedavg", **small).rounds[1], 1e-6)


def unit(vectors: torch.Tensor) -> torch.Tensor:
    return vectors / vectors.norm(dim=1, keepdim=True)


def test_fedsam_on_quadratics_shortens_the_way_by_rho_a_step():
    """grad f_i(x + rho g / |g|) = g + rho g / |g| with g = x - a_i: along a ray, r' = r - local_lr (r + rho)."""
    done, a = run_quadratics("fedsam", *ARGUMENTS, "local_steps=3", "algorithm.rho=0.07", targets=TARGETS)
    for t, reached in enumerate(done.rounds[1:]):
        offset = done.rounds[t] - a
        length = offset.norm(dim=1, keepdim=True)
        for _ in range(3):
            length = length - RATE * (length + 0.07)
        delta = offset - unit(offset) * length
        assert close(reached, done.rounds[t] - SERVER_RATE * delta.mean(0))


def test_fedspeed_follows_its_recursion():
    """h_i <- h_i + (x_t - x_I), the server averages x_I - h_i; f_i(x) = 1/2 |x - a_i|^2."""
    rho, alpha, penalty = 0.07, 0.6, 0.5
    fields = (f"algorithm.rho={rho}", f"algorithm.alpha={alpha}", f"algorithm.penalty={penalty}")
    done, a = run_quadratics("fedspeed", *ARGUMENTS, "local_steps=3", *fields, targets=TARGETS)
    h = torch.zeros_like(a)
    for t, reached in enumerate(done.rounds[1:]):
        start = done.rounds[t]
        x = start.expand_as(a)
        for _ in range(3):
            g = x - a
            quasi = (1 - alpha) * g + alpha * (g + rho * unit(g))
            x = x - RATE * (quasi + (x - start - h) / penalty)
        h = h + (start - x)
        assert close(reached, start - SERVER_RATE * (start - (x - h)).mean(0))
    assert close(done.table("correction"), h)


def test_fedspeed_of_one_step_and_a_weak_penalty_first_moves_twice_as_far_as_fedavg():
    """h_i = x_t - x_I in the first round, so that x_I - h_i = 2 x_I - x_t."""
    fields = ("algorithm.alpha=0", "algorithm.penalty=1e12", "local_steps=2", "num_rounds=1")
    speed, fedavg = run("fedspeed", *fields, "server_lr=0.5").rounds, run("fedavg", *fields[2:], "server_lr=1").rounds
    assert close(speed, fedavg, 1e-9)


def batch(logits: torch.Tensor, labels: torch.Tensor, counts=None, known=None, features=None, weights=None):
    """A batch as an objective gives it, with class counts and the global model's logits as they are."""
    return LocalBatch(
        labels=labels, logits=logits, features=features, activations=(), weights=weights, state={},
        global_params=torch.zeros(1), global_buffers=torch.zeros(0), count_classes=lambda _: counts,
        frozen_logits=lambda: known, frozen_features=None, run_blocks=None,
    )  # fmt: skip


LOGITS = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([[0, 1, 1, 0], [2, 2, 2, 2]])
COUNTS = torch.tensor([[16.0, 81.0, 0.0], [0.0, 0.0, 256.0]], dtype=torch.float64)


def test_fedlc_subtracts_margins_of_rare_classes():
    """16^(-1/4) = 1/2, 81^(-1/4) = 1/3, 256^(-1/4) = 1/4, and 1e-8^(-1/4) = 100 for a class that is absent."""
    found = FedLC(tau=0.6).local_loss(batch(LOGITS, LABELS, COUNTS))
    margins = 0.6 * torch.tensor([[1 / 2, 1 / 3, 100.0], [100.0, 100.0, 1 / 4]], dtype=torch.float64)
    expected = [F.cross_entropy(LOGITS[i] - margins[i], LABELS[i]) for i in range(2)]
    assert close(found, torch.stack(expected))


def test_fedrs_scales_the_logits_of_absent_classes():
    found = FedRS(alpha=0.3).local_loss(batch(LOGITS, LABELS, COUNTS))
    factors = torch.tensor([[1, 1, 0.3], [0.3, 0.3, 1]], dtype=torch.float64)
    expected = [F.cross_entropy(LOGITS[i] * factors[i], LABELS[i]) for i in range(2)]
    assert close(found, torch.stack(expected))


def test_fedntd_distils_the_classes_that_are_not_true():
    """With three classes the not-true distribution is a Bernoulli, whose divergence has two terms."""
    known = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    beta, temperature = 0.7, 2.0
    found = FedNTD(beta=beta, temperature=temperature).local_loss(batch(LOGITS, LABELS, known=known))
    for i in range(2):
        total = 0.0
        for j in range(4):
            others = [c for c in range(3) if c != int(LABELS[i, j])]
            p, q = (F.softmax(values[i, j, others] / temperature, dim=0) for values in (known, LOGITS))
            total += float((p * (p / q).log()).sum())
        expected = F.cross_entropy(LOGITS[i], LABELS[i]) + beta * temperature**2 * total / 4
        assert close(found[i], expected)
    same = FedNTD().local_loss(batch(LOGITS, LABELS, known=LOGITS))
    assert close(same, batch(LOGITS, LABELS).cross_entropy(LOGITS))


def test_fedntds_gradient_is_finite():
    logits = LOGITS.clone().requires_grad_()
    FedNTD().local_loss(batch(logits, LABELS, known=LOGITS + 1)).sum().backward()
    assert logits.grad.isfinite().all()


def test_feddecorr_is_the_mean_square_of_correlations():
    z = torch.randn(1, 50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    matrix = torch.corrcoef(z[0].T)
    assert close(correlation(z, None), (matrix**2).mean().view(1), 1e-7)
    padded = torch.cat([z, torch.full((1, 7, 4), 1e3, dtype=torch.float64)], dim=1)
    weights = torch.cat([torch.full((1, 50), 1 / 50, dtype=torch.float64), torch.zeros(1, 7, dtype=torch.float64)], 1)
    assert close(correlation(padded, weights), correlation(z, None))
    collapsed = z[:, :, :1].repeat(1, 1, 4)
    assert close(correlation(collapsed, None), torch.ones(1, dtype=torch.float64), 1e-6)
    flat = FedDecorr(beta=0.5).local_loss(batch(LOGITS, LABELS, features=torch.ones(2, 4, 4, dtype=torch.float64)))
    assert close(flat, batch(LOGITS, LABELS).cross_entropy(LOGITS))


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_class_counts_and_global_logits_are_those_of_the_worker_and_of_the_global_model(engine):
    """Counted from the partition; at step 0 in a network without BatchNorm the worker's logits are the global ones."""
    labels = images(sum(SIZES), (1, 4, 4), 3, "train").labels.numpy()
    bounds = np.cumsum([0, *SIZES])
    counts = [np.bincount(labels[a:b], minlength=3).tolist() for a, b in itertools.pairwise(bounds)]
    seen: list[LocalBatch] = []

    class Looking(FedNTD):
        def local_loss(self, batch):
            seen.append(batch)
            assert batch.global_logits is batch.global_logits
            return super().local_loss(batch)

    done = run("fedntd", "model.name=mlp", "model.norm=none", f"engine={engine}", "num_rounds=1", algorithm=Looking())
    found = [row for batch in seen for row in batch.class_counts.tolist()]
    [cohort] = done.logged(metrics.COHORT)
    assert sorted(found) == sorted(3 * [counts[worker] for worker in cohort])  # three steps
    first = seen[0]
    assert close(first.global_logits, first.logits.detach())
    assert not close(seen[-1].global_logits, seen[-1].logits.detach(), 1e-6)


@pytest.mark.parametrize(("name", "rho"), [("fedcm", None), ("mofedsam", 0.05)])
def test_momentum_that_is_sent_is_the_mean_direction_of_the_last_round(name, rho):
    """Steps along fresh g + (1 - fresh) Delta on quadratics, Delta = avg (x_t - x_i) / (I local_lr)."""
    fields = ["algorithm.fresh=0.4", *([f"algorithm.rho={rho}"] if rho else [])]
    done, a = run_quadratics(name, *ARGUMENTS, "local_steps=3", *fields, targets=TARGETS)
    last = torch.zeros(4, dtype=torch.float64)
    for t, reached in enumerate(done.rounds[1:]):
        x = done.rounds[t].expand_as(a)
        for _ in range(3):
            g = x - a
            x = x - RATE * (0.4 * (g + (rho or 0) * unit(g)) + 0.6 * last)
        delta = done.rounds[t] - x
        last = delta.mean(0) / (3 * RATE)
        assert close(reached, done.rounds[t] - SERVER_RATE * delta.mean(0))


def test_sent_momentum_reduces_to_its_parts():
    assert torch.equal(run("fedcm", "algorithm.fresh=1").rounds, run("fedavg").rounds)
    assert torch.equal(run("mofedsam", "algorithm.fresh=1").rounds, run("fedsam").rounds)
    assert torch.equal(run("mofedsam", "algorithm.rho=0").rounds, run("fedcm").rounds)
    assert torch.equal(run("mofedsam", "num_rounds=1", "server_lr=5").rounds[0], run("fedavg").rounds[0])


def test_fednova_with_equal_steps_is_fedavg():
    assert close(run("fednova", "aggregation=samples").rounds, run("fedavg", "aggregation=samples").rounds)


def test_fednova_lets_no_worker_pull_harder_because_it_takes_more_steps():
    """With one step per epoch for small workers and several for large ones, (sum w a) sum w d / a."""
    done = watch("fednova", "local_steps=null", "local_epochs=2", "batch_size=8", "cohort_size=6")
    for seen in done.algorithm.server_steps:
        steps = seen.updates.local_steps
        assert steps.min() < steps.max()
        weights, delta = seen.updates.weights, seen.updates.delta
        assert close(seen.direction, (weights @ steps) * (weights / steps) @ delta)
        assert not close(seen.direction, weights @ delta, 1e-4)
