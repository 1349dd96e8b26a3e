"""Personalised methods: what each worker keeps, closed forms on quadratics, and what they reduce to."""

import numpy as np
import pytest
import torch

from fl_platform.algorithms import base
from fl_platform.algorithms.base import LocalStart
from fl_platform.errors import UserError
from fl_platform.runs import metrics
from tests.algorithms.trajectories import run, run_quadratics, watch
from tests.federations import make_config

RATE, SERVER_RATE, STEPS = 0.15, 0.8, 3
ARGUMENTS = (f"local_lr={RATE}", f"server_lr={SERVER_RATE}", f"local_steps={STEPS}", "num_rounds=4")
TARGETS = np.random.default_rng(7).integers(0, 256, (5, 4)).astype(np.uint8)
HEAD = 6 * 3 + 3  # the last linear layer of the tiny network of 239 parameters
NORMS = 2 * (8 + 6)


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-12) -> bool:
    return torch.allclose(a, b, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("fedper", ("personal_layers=0",)),
        ("fedrep", ("personal_layers=0", "head_steps=0")),
        ("fedbabu", ("head_layers=0",)),
        ("fedbn", ()),  # of a model without norms
    ],
)
def test_without_personal_layers_they_are_fedavg(name, fields):
    model = ("model.name=mlp", "model.norm=none") if name == "fedbn" else ()
    args = [f"algorithm.{field}" for field in fields]
    assert torch.equal(run(name, *args, *model).rounds, run("fedavg", *model).rounds)


def test_fedper_averages_the_base_and_leaves_the_last_layer_with_the_workers():
    done = watch("fedper", "aggregation=samples")
    kept: dict[int, torch.Tensor] = {}
    for t, seen in enumerate(done.algorithm.server_steps):
        updates = seen.updates
        ended = seen.before - updates.delta
        mean = updates.weights @ ended
        assert close(done.rounds[t + 1][:-HEAD], mean[:-HEAD])
        assert not updates.delta[:, -HEAD:].any()  # the server never sees them
        assert torch.equal(done.rounds[t + 1][-HEAD:], done.rounds[0][-HEAD:])
        kept |= {int(worker): row for worker, row in zip(updates.workers, ended, strict=True)}
    table = done.table("personal")
    for worker, row in kept.items():
        assert close(table[worker, :-HEAD], row[:-HEAD])
    assert table[list(kept), -HEAD:].std(0).max() > 1e-3


def test_a_worker_starts_with_its_own_layers():
    done = watch("fedper", "num_rounds=6")
    last: dict[int, torch.Tensor] = {}
    again = 0
    first, final = (iter([step for step in done.algorithm.steps if step.index == index]) for index in (0, 2))
    for seen in done.algorithm.server_steps:
        start, step = next(first).drift + seen.before, next(final)
        ended = seen.before + step.drift - 0.1 * step.direction
        for row, worker in enumerate(seen.updates.workers.tolist()):
            if worker in last:
                again += 1
                assert close(start[row, -HEAD:], last[worker][-HEAD:])
            assert close(start[row, :-HEAD], seen.before[:-HEAD])
            last[worker] = ended[row]
    assert again > 3


def test_fedrep_trains_the_head_first_and_the_base_after():
    done = watch("fedrep", "algorithm.head_steps=2", "num_rounds=1")
    for step in done.algorithm.steps:
        moving, fixed = step.direction[:, -HEAD:], step.direction[:, :-HEAD]
        if step.index >= 2:
            moving, fixed = fixed, moving
        assert not fixed.any()
        assert moving.any()


def test_fedbabu_never_trains_the_head():
    done = run("fedbabu")
    assert torch.equal(done.rounds[-1][-HEAD:], done.rounds[0][-HEAD:])
    assert not close(done.rounds[-1][:-HEAD], done.rounds[0][:-HEAD], 1e-3)


def test_fedbn_keeps_norms_and_their_statistics():
    done = run("fedbn", "cohort_size=6", "num_rounds=2")
    is_norm = done.algorithm.is_personal
    assert int(is_norm.sum()) == NORMS
    assert torch.equal(done.rounds[-1][is_norm], done.rounds[0][is_norm])
    statistics = done.table("statistics")
    assert len({tuple(row.tolist()) for row in statistics}) == 6
    start = LocalStart(np.arange(6), done.params, done.module.global_buffers, done.module.global_buffers,
                       {"personal": done.table("personal"), "statistics": statistics})  # fmt: skip
    params, buffers = done.algorithm.worker_model(start)
    assert torch.equal(buffers, statistics)
    assert torch.equal(params[:, is_norm], done.table("personal")[:, is_norm])
    assert torch.equal(params[:, ~is_norm], done.params[~is_norm].expand(6, -1))


@pytest.mark.parametrize(("name", "private"), [("fedper", HEAD), ("fedrep", HEAD), ("fedbn", NORMS), ("ditto", 0)])
def test_what_stays_with_the_workers_is_not_counted_as_sent(name, private):
    done = run(name, "num_rounds=1", "local_steps=1", "buffers=server")
    assert done.logged(metrics.TOTAL_BYTES) == [3 * 2 * 8 * (239 - private)]


@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_dittos_models_follow_their_recursion_beside_fedavg(penalty):
    """v <- v - local_lr ((v - a) + lambda (v - x_t)); with lambda = 0 it is SGD of each worker alone."""
    done, a = run_quadratics("ditto", *ARGUMENTS, f"algorithm.penalty={penalty}", targets=TARGETS)
    fedavg, _ = run_quadratics("fedavg", *ARGUMENTS, targets=TARGETS)
    assert torch.equal(done.rounds, fedavg.rounds)
    v = done.rounds[0].expand_as(a)
    for x in done.rounds[:-1]:
        for _ in range(STEPS):
            v = v - RATE * ((v - a) + penalty * (v - x))
    assert close(done.table("personal"), v)
    if penalty == 0:
        assert close(v - a, (1 - RATE) ** (STEPS * 4) * (done.rounds[0] - a))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_apfls_models_follow_their_recursion_beside_fedavg(alpha):
    """v <- v - local_lr alpha (alpha v + (1 - alpha) x_tau - a)."""
    done, a = run_quadratics("apfl", *ARGUMENTS, f"algorithm.alpha={alpha}", targets=TARGETS)
    v = done.rounds[0].expand_as(a)
    for x in done.rounds[:-1]:
        local = x.expand_as(a)
        for _ in range(STEPS):
            v, local = v - RATE * alpha * (alpha * v + (1 - alpha) * local - a), local - RATE * (local - a)
    assert close(done.table("personal"), v)
    start = LocalStart(np.arange(5), done.params, done.module.global_buffers, done.module.global_buffers,
                       {"personal": v})  # fmt: skip
    mixed = done.algorithm.worker_model(start)[0]
    assert close(mixed, alpha * v + (1 - alpha) * done.params)


def test_personal_steps_of_workers_that_end_earlier_are_kept():
    """With unequal numbers of steps, each worker's own model has taken its own number."""
    sizes = (2, 4, 2, 6, 2)
    args = (*ARGUMENTS, "local_steps=null", "local_epochs=1", "batch_size=2", "algorithm.penalty=0")
    done, a = run_quadratics("ditto", *args, targets=TARGETS, sizes=sizes)
    steps = torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0], dtype=torch.float64)[:, None]
    assert close(done.table("personal") - a, (1 - RATE) ** (4 * steps) * (done.rounds[0] - a))


@pytest.mark.parametrize("name", ["ditto", "apfl", "fedper", "fedbn"])
def test_workers_are_scored_with_their_own_model(name):
    """On data of workers that differ, own models fit them otherwise than the global one does."""
    args = ("evaluation.workers=true", "data.worker_test_fraction=0.3", "cohort_size=6")
    done, fedavg = run(name, *args, sizes=(20,) * 6), run("fedavg", *args, sizes=(20,) * 6)
    own, shared = (one.logged(metrics.WORKERS_LOSS)[-1] for one in (done, fedavg))
    assert own != shared


def test_too_many_personal_layers_are_one_sentence():
    with pytest.raises(UserError, match=r"algorithm.personal_layers=9 is not allowed; the model has 3 layers"):
        run("fedper", "algorithm.personal_layers=9")


def test_domo_starts_ahead_and_counts_only_the_workers_own_steps():
    """On quadratics: own = avg(start - x_I) with start = x - fusion M, M' = mu M + own, x' = x - server_lr M'."""
    done, a = run_quadratics(
        "domo", *ARGUMENTS, "algorithm.momentum_decay=0.6", "algorithm.fusion=0.3", targets=TARGETS
    )
    x, m = done.rounds[0], torch.zeros(4, dtype=torch.float64)
    for reached in done.rounds[1:]:
        start = x - 0.3 * m
        m = 0.6 * m + (1 - (1 - RATE) ** STEPS) * (start - a.mean(0))
        x = x - SERVER_RATE * m
        assert close(reached, x)
    momentum = "algorithm.momentum_decay=0.5"
    assert close(run("domo", "algorithm.fusion=0", momentum).rounds, run("fedavgm", momentum).rounds)
    assert base.get("domo").downloads == 2


def test_fedrep_leaves_a_step_for_the_shared_layers():
    steps = {local: make_config("algorithm.name=fedrep", f"local_steps={local}") for local in (1, 2, 3, 5, 9)}
    assert {local: config.algorithm["head_steps"] for local, config in steps.items()} == {1: 0, 2: 1, 3: 2, 5: 3, 9: 3}
    assert make_config("algorithm.name=fedrep", "local_epochs=1").algorithm["head_steps"] == 3
    with pytest.raises(UserError, match=r"algorithm.head_steps=3 is not allowed; it must be < local_steps=3"):
        make_config("algorithm.name=fedrep", "algorithm.head_steps=3")
