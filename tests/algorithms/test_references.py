"""Runs without communication: all data in one place, and every worker alone."""

import numpy as np
import pytest
import torch

from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.errors import UserError
from fl_platform.paper.methods import Group
from fl_platform.reporting.layout import layout
from fl_platform.reporting.styles import method_of
from fl_platform.runs import metrics
from tests.algorithms.trajectories import run_quadratics
from tests.federations import SIZES, make_config, make_module, train

RATE = 0.15
TARGETS = np.random.default_rng(3).integers(0, 256, (5, 4)).astype(np.uint8)
CLOSE = {"rtol": 0, "atol": 1e-13}


def test_centralised_is_gradient_descent_on_all_data_with_the_cohort_s_steps():
    """Batches of everything: f = mean_i |x - a_i|^2 / 2, S I = 3 * 2 steps per round contract by (1 - h)^6."""
    args = (f"local_lr={RATE}", "local_steps=2", "cohort_size=3", "num_rounds=3", "batch_size=64")
    done, a = run_quadratics("centralised", *args, targets=TARGETS)
    errors = done.rounds - a.mean(0)
    expected = torch.stack([(1 - RATE) ** (6 * t) * errors[0] for t in range(4)])
    assert torch.allclose(errors, expected, **CLOSE)
    assert set(done.logged(metrics.GRADIENT_PASSES)) == {6}
    assert set(done.logged(metrics.TOTAL_BYTES)) == {0}


def test_centralised_takes_the_steps_of_unequal_workers_and_leaves_their_tests_alone():
    args = ("algorithm.name=centralised", "local_epochs=1", "work.name=uniform", "data.worker_test_fraction=0.2")
    central = train(make_config(*args, "evaluation.workers=true")).module
    federated = train(make_config("algorithm.name=fedavg", *args[1:])).module
    for mine, its in zip(central.history, federated.history, strict=True):
        assert mine[metrics.COHORT] == its[metrics.COHORT]
        assert mine[metrics.GRADIENT_PASSES] == its[metrics.GRADIENT_PASSES]
    held = set(central.worker_tests.of_workers.indices.tolist())
    trained = central.streams.partition.indices.tolist()
    assert not held & set(trained)
    assert len(held) + len(trained) == sum(SIZES)
    assert central.history[-1][metrics.WORKERS_SCORED] == len(SIZES)


def test_workers_alone_go_to_their_own_minima():
    """After k rounds with I steps worker i is at a_i + (1 - h)^(I k) (x_0 - a_i); the server stays at x_0."""
    args = (f"local_lr={RATE}", "local_steps=2", "cohort_size=2", "num_rounds=4", "engine=stacked")
    done, a = run_quadratics("local_only", *args, targets=TARGETS)
    start = done.rounds[0]
    assert torch.equal(done.rounds, start.expand(5, -1))
    cohorts = done.logged(metrics.COHORT)
    times = np.bincount(np.concatenate(cohorts), minlength=5)
    expected = a + torch.from_numpy((1 - RATE) ** (2.0 * times))[:, None] * (start - a)
    kept = done.module.states.state_dict()["own_params"]
    for worker, row in zip(kept["workers"].tolist(), kept["rows"], strict=True):
        assert torch.allclose(row, expected[worker], **CLOSE)
    assert set(done.logged(metrics.TOTAL_BYTES)) == {0}


def test_figures_of_workers_alone_are_means_over_all_of_them():
    done = train(make_config("algorithm.name=local_only", "cohort_size=2", "num_rounds=2"))
    module = done.module
    kept = module.states.state_dict()
    rows = {name: dict(zip(kept[name]["workers"].tolist(), kept[name]["rows"], strict=True)) for name in kept}
    initial = make_module(module.config)
    scores = [
        module._evaluate(
            rows["own_params"].get(worker, initial.global_params),
            rows["own_buffers"].get(worker, initial.global_buffers),
        )
        for worker in range(len(SIZES))
    ]
    assert 2 <= len(rows["own_params"]) < len(SIZES)
    assert module.history[-1][metrics.TEST_ACCURACY] == pytest.approx(np.mean([s.accuracy for s in scores]), abs=1e-12)
    assert module.history[-1][metrics.TEST_LOSS] == pytest.approx(np.mean([s.loss for s in scores]), abs=1e-12)


@pytest.mark.parametrize("name", ["centralised", "local_only"])
def test_nothing_is_sent_that_could_be_compressed_or_faulty(name):
    for key in ("compression.name=topk", "faults.kind=nan"):
        with pytest.raises(UserError, match=f"with algorithm.name={name}: nothing is sent"):
            resolve(compose([f"algorithm.name={name}", key]))


@pytest.mark.parametrize("key", ["server_lr=0.5", "server_lr_schedule=cosine"])
@pytest.mark.parametrize("name", ["centralised", "local_only"])
def test_no_rate_of_a_server_that_is_not_there(name, key):
    with pytest.raises(UserError, match=rf"server_lr=.* with algorithm.name={name}: there is no server"):
        resolve(compose([f"algorithm.name={name}", key]))
    resolve(compose([f"algorithm.name={name}", "server_lr=1"]))


def test_tables_show_references_above_and_below_and_never_as_the_best():
    import pandas as pd

    from fl_platform.paper.scenarios import Scenario

    place = Scenario("digits", "0.1", 10)
    found = [
        ("centralised", 0.99),
        ("local_only", 0.2),
        ("fedavg", 0.5),
        ("gradma", 0.6),
        ("median", 0.4),
        ("krum", 0.3),
    ]
    groups = {"centralised": "reference", "local_only": "reference", "median": "robust", "krum": "robust"}
    numbers = pd.DataFrame(
        {
            "n": 1,
            "algorithm": name,
            "method": method_of(name, name, groups.get(name)),
            "scenario": place,
            "text": str(v),
            "score": v,
        }
        for name, v in found
    )
    table = layout("t", numbers, [])
    assert [[row.label for row in block] for block in table.blocks] == [
        *(["centralised"], ["FedAvg"], ["GradMA"], ["krum", "median"], ["local_only"])
    ]
    bold = [row.label for block in table.blocks for row in block if row.cells[0].is_bold]
    assert bold == ["median"]  # the best of a group of at least two
    assert numbers["method"][0].group == Group.REFERENCE
