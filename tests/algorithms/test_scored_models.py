"""FedDyn's two models: the one that counts, and the other one scored beside it at every evaluation."""

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fl_platform.algorithms import base
from fl_platform.config.schema import Config
from fl_platform.runs import metrics
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from tests.algorithms.trajectories import watching
from tests.distributed.two_ranks import READINGS
from tests.federations import Finished, make_config, train

OTHER = {"server": "active_mean", "active_mean": "server"}
BESIDE = {metrics.score_of(name, figure) for name in OTHER for figure in ("accuracy", "loss")}


def scores(done: Finished, model: str, counting: str) -> list[tuple[float, float]]:
    """Loss and accuracy of a model at every evaluation, wherever they are logged."""
    loss, accuracy = (
        (metrics.TEST_LOSS, metrics.TEST_ACCURACY)
        if model == counting
        else (metrics.score_of(model, "loss"), metrics.score_of(model, "accuracy"))
    )
    return [(row[loss], row[accuracy]) for row in done.figures() if loss in row]


def test_the_keys_are_documented_names():
    text = sys.modules[base.get("feddyn").__module__].__doc__ or ""
    assert set(re.findall(r"``(test/\w+)``", text)) == BESIDE


def test_both_models_are_scored_whichever_counts():
    args = ("algorithm.name=feddyn", "num_rounds=5")
    server, mean = (train(make_config(*args, f"algorithm.evaluated={reading}")) for reading in READINGS)
    assert torch.equal(server.params, mean.params)
    for model in READINGS:
        assert scores(server, model, "server") == scores(mean, model, "active_mean")
        assert len(scores(server, model, "server")) == 5
    assert scores(server, "server", "server") != scores(server, "active_mean", "server")
    for done, reading in ((server, "server"), (mean, "active_mean")):
        accuracies = [accuracy for _, accuracy in scores(done, reading, reading)]
        assert done.module.scoreboard.top_accuracy == max(accuracies)
        assert done.module.scoreboard.final_accuracy == accuracies[-1]


def test_the_score_beside_is_that_of_the_mean_of_the_cohorts_models():
    """avg_S(x_I) = x_t - avg_S(d) from what the server received, scored by the module itself."""
    config = make_config("algorithm.name=feddyn", "aggregation=samples")
    done = train(config, algorithm=watching(base.get("feddyn"), **without_name(config.algorithm)))
    last = done.algorithm.server_steps[-1]
    sizes = torch.from_numpy(done.module.sizes[last.updates.workers]).double()
    mean = last.before - (sizes[:, None] * last.updates.delta).sum(0) / sizes.sum()
    scores = done.module.evaluate(mean)
    row = done.figures()[-1]
    assert row[metrics.score_of("active_mean", "loss")] == pytest.approx(scores.loss, abs=1e-12)
    assert row[metrics.score_of("active_mean", "accuracy")] == scores.accuracy


def without_name(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != "name"}


@pytest.mark.parametrize("reading", READINGS)
def test_scores_beside_come_with_every_evaluation_and_survive_resuming(reading, tmp_path):
    """Evaluated in rounds 1, 4, 7 and 8; resumed after round 4."""
    args = ("algorithm.name=feddyn", "num_rounds=8", "evaluation.every=3", f"algorithm.evaluated={reading}")
    config = make_config(*args)
    whole = train(config)
    beside = metrics.score_of(OTHER[reading], "accuracy")
    evaluated = [row[metrics.ROUND] for row in whole.figures() if metrics.TEST_ACCURACY in row]
    assert evaluated == [row[metrics.ROUND] for row in whole.figures() if beside in row] == [1, 4, 7, 8]
    assert whole.figures() == resumed_after(4, config, tmp_path).figures()


def resumed_after(round: int, config: Config, folder: Path) -> Finished:
    train(dataclasses.replace(config, num_rounds=round), checkpoints=folder)
    [(newest_round, newest), *_] = sorted_checkpoints(folder)
    assert newest_round == round
    return train(config, resume=newest)


def test_a_checkpoint_carries_the_mean_to_rounds_in_which_nobody_reports(tmp_path):
    args = ("availability.name=bernoulli", "availability.failure_probability=0.7", "num_rounds=8")
    config = make_config("algorithm.name=feddyn", *args)
    whole = train(config)
    sizes = [row[metrics.COHORT_SIZE] for row in whole.figures()]
    silent = next(index for index in range(1, 8) if sizes[index] == 0 and sizes[index - 1] > 0)
    key = metrics.score_of("active_mean", "loss")
    assert whole.figures()[silent][key] == whole.figures()[silent - 1][key]
    assert whole.figures() == resumed_after(silent, config, tmp_path).figures()


@pytest.mark.parametrize("reading", READINGS)
def test_until_a_worker_reports_both_models_are_the_initial_one(reading):
    """Nobody reports at all: the mean of no model is not a network of zeros."""
    args = ("availability.name=bernoulli", "availability.failure_probability=1.0", "num_rounds=2")
    done = train(make_config("algorithm.name=feddyn", f"algorithm.evaluated={reading}", *args))
    assert [row[metrics.COHORT_SIZE] for row in done.figures()] == [0, 0]
    assert scores(done, "server", reading) == scores(done, "active_mean", reading)
    plain = train(make_config("algorithm.name=fedavg", *args))
    assert scores(done, "server", reading) == scores(plain, "server", "server")


def test_other_methods_score_one_model():
    default = base.Algorithm.also_evaluated
    assert [name for name in base.names() if base.get(name).also_evaluated is not default] == ["feddyn"]
    done = train(make_config("algorithm.name=fedavg", "num_rounds=1"))
    assert not BESIDE & set(done.figures()[0])


def test_a_mean_without_a_finite_loss_does_not_end_the_run():
    class Broken(base.get("feddyn")):  # type: ignore[misc]
        def also_evaluated(self, global_params: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"active_mean": torch.full_like(global_params, np.nan)}

    config = make_config("algorithm.name=feddyn")
    done = train(config, algorithm=Broken(**without_name(config.algorithm)))
    assert len(done.figures()) == 3
    assert all(metrics.TEST_ACCURACY in row and not BESIDE & set(row) for row in done.figures())
