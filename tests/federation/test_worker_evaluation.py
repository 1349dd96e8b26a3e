"""Scores on each worker's own test samples: of the global model, of models of their own, and after fine-tuning."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fl_platform.algorithms.base import Algorithm, Federation, LocalRun, LocalStart, Start, Updates, state
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.data.partition import Partition
from fl_platform.data.samples import Samples
from fl_platform.data.worker_tests import owner_tests, split_worker_tests
from fl_platform.engines.worker_scores import WorkerScores, score_own_models, with_samples
from fl_platform.errors import UserError
from fl_platform.federation.round import Model
from fl_platform.federation.worker_evaluation import summary, worker_models
from fl_platform.models.flat import Stack, Vector
from fl_platform.runs import metrics
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from tests.federations import SIZES, make_config, train

SCORED = ("evaluation.workers=true", "data.worker_test_fraction=0.3", "num_rounds=2")


@dataclass(eq=False)
class LocalHead(Algorithm):
    """FedAvg whose workers keep the last layer to themselves (FedPer): an example of both hooks."""

    is_own: Vector | None = state(lambda federation: own_coordinates(federation))

    @property
    def keeps(self) -> dict[str, Start]:
        return {"own": Start.INITIAL_PARAMS}

    def start_local(self, start: LocalStart) -> tuple[Stack, Stack | Vector]:
        return torch.where(self.is_own, start.state["own"], start.global_params), start.buffers

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        return {"own": run.params}

    def server_direction(self, updates: Updates) -> Vector:
        return torch.where(self.is_own, 0, updates.mean_delta)


LocalHead.name = "local_head"


def own_coordinates(federation: Federation) -> Vector:
    """True for the weight and the bias of the last layer."""
    is_own = torch.zeros(federation.layout.dim, dtype=torch.bool)
    is_own[federation.layout.segments[-2][0] :] = True
    return is_own


def test_tests_are_a_share_of_every_worker_and_of_its_classes():
    rng = np.random.default_rng(0)
    sizes = np.array([2, 3, 10, 40, 400])
    labels = rng.integers(0, 4, sizes.sum())
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    whole = Partition(rng.permutation(sizes.sum()), offsets)
    training, tests = split_worker_tests(whole, labels, 0.25, seed=1)
    assert tests.sizes.tolist() == [0, 1, 2, 10, 100]
    assert (training.sizes + tests.sizes).tolist() == sizes.tolist()
    for worker in range(5):
        assert sorted([*training.of(worker), *tests.of(worker)]) == sorted(whole.of(worker))
    counts = [np.bincount(labels[part.of(4)], minlength=4) for part in (whole, tests)]
    assert np.abs(counts[1] - counts[0] / 4).max() < 1
    again, other = (split_worker_tests(whole, labels, 0.25, seed=seed)[1] for seed in (1, 2))
    assert np.array_equal(again.indices, tests.indices)
    assert not np.array_equal(other.indices, tests.indices)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_one_pass_gives_the_scores_of_every_worker_by_itself(engine):
    done = train(make_config(*SCORED, f"engine={engine}"))
    evaluation = done.module.worker_evaluation
    model = Model(done.params, done.module.global_buffers)
    scores = evaluation.scores(model)
    assert scores.workers.tolist() == list(range(len(SIZES)))
    own = score_own_models(
        *(v.expand(len(SIZES), -1) for v in model),
        *(evaluation.samples, evaluation.tests, np.arange(len(SIZES)), done.module.threads, done.module.ranks),
        is_stacked=engine == "stacked",
    )
    for worker in range(len(SIZES)):
        indices = torch.from_numpy(evaluation.tests.of(worker))
        x, labels = evaluation.samples.batch(indices), evaluation.samples.labels(indices)
        logits = done.module.network.export(*model).eval()(x).detach()
        assert scores.correct[worker] == own.correct[worker] == (logits.argmax(1) == labels).sum().item()
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        assert scores.loss[worker] == pytest.approx(loss, abs=1e-10)
        assert own.loss[worker] == pytest.approx(loss, abs=1e-10)


def test_scoring_changes_nothing_else():
    args = ("data.worker_test_fraction=0.3", "num_rounds=2")
    plain, scored = train(make_config(*args)), train(make_config(*SCORED, "evaluation.finetune_steps=2"))
    assert torch.equal(plain.params, scored.params)
    for row, more in zip(plain.figures(), scored.figures(), strict=True):
        assert row == {name: value for name, value in more.items() if not name.startswith(metrics.WORKERS)}
        assert metrics.fine_tuned(metrics.WORST_WORKERS) in more


def test_every_worker_on_the_samples_it_trains_on():
    """The mean of the workers' losses is then the objective of the federation, f(x) = 1/N sum_i f_i(x)."""
    args = ("evaluation.workers=true", "evaluation.worker_samples=training", "evaluation.each_worker=true")
    done = train(make_config(*args, "num_rounds=1"))
    evaluation = done.module.worker_evaluation
    assert evaluation.tests is done.module.members.partition
    scores = evaluation.scores(Model(done.params, done.module.global_buffers))
    assert scores.total.tolist() == list(SIZES)
    row = done.module.history[-1]
    assert row[metrics.EACH_WORKER] == scores.accuracy.tolist()
    assert row[metrics.WORKERS_LOSS] == scores.mean_loss.mean()
    some = train(make_config("evaluation.workers=true", "data.worker_test_fraction=0.1", args[2], "num_rounds=1"))
    has_tests = some.module.worker_evaluation.tests.sizes > 0
    assert 0 < has_tests.sum() < len(SIZES)
    assert (np.isfinite(some.module.history[-1][metrics.EACH_WORKER]) == has_tests).all(), (
        "NaN for a worker without tests"
    )


def test_rounds_between_evaluations_on_workers():
    history = train(make_config(*SCORED, "num_rounds=6", "evaluation.workers_every=4")).module.history
    assert [row["round"] for row in history if metrics.WORKERS_ACCURACY in row] == [1, 5, 6]
    assert all(metrics.TEST_ACCURACY in row for row in history)


def test_means_worst_tenth_and_thirds_by_size():
    total = np.full(20, 100)
    scores = WorkerScores(np.arange(20), np.arange(20) * 5, np.zeros(20), total)
    found = summary(scores, np.arange(20)[::-1] + 2)
    assert found[metrics.WORKERS_ACCURACY] == pytest.approx(0.475)
    assert found[metrics.WORKERS_STD] == pytest.approx(np.std(np.arange(20) * 0.05))
    assert found[metrics.WORST_WORKERS] == pytest.approx(0.025)  # the two worst of twenty: 0 and 0.05
    assert found[metrics.SMALL_WORKERS] > found[metrics.MEDIUM_WORKERS] > found[metrics.LARGE_WORKERS]


def test_a_head_of_its_own_stays_with_its_worker_in_both_engines(tmp_path):
    args = (*SCORED, "evaluation.finetune_steps=3", "num_rounds=3", "buffers=local")
    runs = [train(make_config(*args, f"engine={engine}"), algorithm=LocalHead()) for engine in ("loop", "stacked")]
    for mine, its in zip(*(done.figures() for done in runs), strict=True):
        assert mine.keys() == its.keys()
        assert mine[metrics.WORKERS_ACCURACY] == its[metrics.WORKERS_ACCURACY]
        assert mine[metrics.WORKERS_LOSS] == pytest.approx(its[metrics.WORKERS_LOSS], abs=1e-10)
        name = metrics.fine_tuned(metrics.WORKERS_LOSS)
        assert mine[name] == pytest.approx(its[name], abs=1e-10)
    module = runs[0].module
    is_own, start = runs[0].algorithm.is_own, module.network.initial_params.double()
    assert torch.equal(module.global_params[is_own], start[is_own])
    assert not torch.equal(module.global_params[~is_own], start[~is_own])
    seen = sorted({worker for row in module.history for worker in row[metrics.COHORT]})
    params, _ = worker_models(module.server, Model(module.global_params, module.global_buffers), np.arange(6))
    assert all(torch.equal(row[~is_own], module.global_params[~is_own]) for row in params)
    assert all(torch.equal(params[worker][is_own], start[is_own]) == (worker not in seen) for worker in range(6))


def test_workers_with_models_of_their_own_resume_with_the_same_bits(tmp_path):
    config = make_config(*SCORED, "num_rounds=3")
    whole = train(config, algorithm=LocalHead(), checkpoints=tmp_path)
    [second] = [path for round, path in sorted_checkpoints(tmp_path) if round == 2]
    again = train(config, algorithm=LocalHead(), checkpoints=tmp_path / "again", resume=second)
    assert whole.figures() == again.figures()


def test_fine_tuning_is_local_training_from_the_worker_s_model():
    """Steps over whole local sets, without BatchNorm: gradient descent written out."""
    config = make_config(*SCORED, "evaluation.finetune_steps=2", "batch_size=64", "model.norm=none", "num_rounds=1")
    done = train(config)
    evaluation, model = done.module.worker_evaluation, Model(done.params, done.module.global_buffers)
    tuned = evaluation.fine_tuned_scores(model, 1)
    for row, worker in enumerate(with_samples(evaluation.tests)):
        network = done.module.network.export(*model)
        indices = torch.from_numpy(evaluation.training.of(worker))
        sgd = torch.optim.SGD(network.parameters(), lr=config.local_lr)
        for _ in range(2):
            sgd.zero_grad()
            logits = network(evaluation.samples.batch(indices))
            torch.nn.functional.cross_entropy(logits, evaluation.samples.labels(indices)).backward()
            sgd.step()
        held = torch.from_numpy(evaluation.tests.of(worker))
        logits = network(evaluation.samples.batch(held)).detach()
        loss = torch.nn.functional.cross_entropy(logits, evaluation.samples.labels(held), reduction="sum")
        assert tuned.loss[row] == pytest.approx(loss.item(), abs=1e-9)


def test_workers_of_natural_owners_are_tested_on_their_owners_test_samples():
    train_owners, test_owners = np.array([3, 0, 3, 1, 0, 1]), np.array([1, 0, 2, 1, 3])
    train_set, test_set = (
        Samples(torch.zeros(len(owners), 1), torch.zeros(len(owners), dtype=torch.int64), torch.from_numpy(owners))
        for owners in (train_owners, test_owners)
    )
    partition = Partition(np.array([1, 4, 3, 5, 0, 2]), np.array([0, 2, 4, 6]))  # workers of owners 0, 1 and 3
    tests = owner_tests(partition, train_set, test_set)
    assert [tests.of(worker).tolist() for worker in range(3)] == [[1], [0, 3], [4]]
    without = Samples(test_set.features, test_set.labels)
    assert len(owner_tests(partition, train_set, without).indices) == 0
    mixed = Partition(partition.indices, np.array([0, 3, 4, 6]))  # the first worker has samples of owners 0 and 1
    tests = owner_tests(mixed, train_set, test_set)
    assert [tests.of(worker).tolist() for worker in range(3)] == [[], [0, 3], [4]]


def test_scores_without_tests_are_refused():
    with pytest.raises(UserError, match=r"evaluation.workers=true with data.worker_test_fraction=0: workers have no"):
        resolve(compose(["evaluation.workers=true"]))
    with pytest.raises(UserError, match=r"data.worker_test_fraction=0.01 leaves no worker a test sample"):
        train(make_config("evaluation.workers=true", "data.worker_test_fraction=0.01"))


def test_a_wrong_model_of_a_worker_is_named():
    class Wrong(LocalHead):
        def worker_model(self, start: LocalStart) -> tuple[Stack, Vector]:
            return start.global_params[1:], start.buffers

    with pytest.raises(TypeError, match=r"Wrong.worker_model returned a tensor of shape .* or a stack of"):
        train(make_config(*SCORED), algorithm=Wrong())
