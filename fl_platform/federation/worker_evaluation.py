"""How models do where the workers are: scores on each worker's own test samples, also after fine-tuning there."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fl_platform import seeding
from fl_platform.algorithms.base import Algorithm, LocalStart, has_default
from fl_platform.algorithms.returned import check_pair
from fl_platform.data.device_samples import DeviceSamples
from fl_platform.data.partition import Partition
from fl_platform.data.streams import BatchStreams
from fl_platform.engines.cohort import TrainingPool, train_cohort
from fl_platform.engines.evaluation import Scores
from fl_platform.engines.work import LocalWork
from fl_platform.engines.worker_scores import WorkerScores, score_one_model, score_own_models, with_samples
from fl_platform.federation.round import Model, Server
from fl_platform.federation.schedules import local_rate
from fl_platform.models.flat import Stack, Vector
from fl_platform.models.network import Network
from fl_platform.runs import metrics

WORST = 0.1
"""Share of workers whose mean accuracy is logged as that of the worst."""


class FineTuning(Algorithm):
    """Plain steps of every worker from a model of its own."""

    def start_local(self, start: LocalStart) -> tuple[Stack | Vector, Stack | Vector]:
        return start.state["params"], start.state["buffers"]


def worker_models(server: Server, model: Model, workers: np.ndarray) -> tuple[Stack, Stack]:
    """Parameters and running statistics of the model that each worker uses (``Algorithm.worker_model``)."""
    found = server.algorithm.worker_model(server.start(model, workers))
    check_pair(server.algorithm, "worker_model", found, model, rows=len(workers))
    params, buffers = (tensor.expand(len(workers), -1) for tensor in found)
    return params, buffers


def mean_over_workers(server: Server, model: Model, evaluate: Callable[[Vector, Vector], Scores]) -> Scores:
    """The mean of the scores of all workers' models; those that no round has reached have one in common."""
    seen = server.states.workers
    unseen = np.setdiff1d(np.arange(server.config.population), seen)
    parts = []
    for worker, count in [*((worker, 1) for worker in seen), *((worker, len(unseen)) for worker in unseen[:1])]:
        params, buffers = worker_models(server, model, np.array([worker]))
        parts.append((evaluate(params[0], buffers[0]), count))
    return Scores.mean(parts)


@dataclass
class WorkerEvaluation:
    """Scores of the workers of a federation, as many at a time as a cohort has where each has a model of its own."""

    server: Server
    network: Network
    samples: DeviceSamples  # that hold the tests: the training data, or with natural owners the test set
    training: Partition
    tests: Partition
    fine_tuning: TrainingPool
    is_stacked: bool

    def metrics(self, model: Model, round: int) -> dict[str, Any]:
        """What is logged of a round: accuracies over workers or of each one, and the same after fine-tuning."""
        scores = self.scores(model)
        found: dict[str, Any] = {**summary(scores, self.training.sizes)}
        if self.server.config.evaluation.each_worker:
            each = np.full(self.tests.num_workers, np.nan)
            each[scores.workers] = scores.accuracy
            found[metrics.EACH_WORKER] = each.tolist()
        if self.server.config.evaluation.finetune_steps:
            tuned = summary(self.fine_tuned_scores(model, round), self.training.sizes)
            del tuned[metrics.WORKERS_SCORED]
            found |= {metrics.fine_tuned(name): value for name, value in tuned.items()}
        return found

    @property
    def is_one_model(self) -> bool:
        """Whether all workers use the global model."""
        is_default = has_default(self.server.algorithm, "start_local", "worker_model")
        return is_default and self.server.config.buffers != "local"

    def scores(self, model: Model) -> WorkerScores:
        """Scores of the model that each worker uses."""
        server = self.server
        if self.is_one_model:
            return score_one_model(self.network, *model, self.samples, self.tests, server.threads, server.ranks)
        parts = [self._score(*worker_models(server, model, workers), workers) for workers in self._chunks()]
        return WorkerScores.together(parts)

    def fine_tuned_scores(self, model: Model, round: int) -> WorkerScores:
        """The same after ``evaluation.finetune_steps`` plain local steps of each worker on its training data.

        Their batches depend on the seed, the round and the worker alone.
        """
        server, config = self.server, self.server.config
        streams = BatchStreams(self.training, config.batch_size, seeding.key(config.seed, "finetune", round))
        parts = []
        for workers in self._chunks():
            params, buffers = worker_models(server, model, workers)
            work = LocalWork(
                round=round,
                workers=workers,
                plan=streams.draw(workers, config.evaluation.finetune_steps),
                local_lr=local_rate(config, round),
                global_params=model.params,
                global_buffers=model.buffers,
                buffers=model.buffers,
                relative_sizes=torch.ones(len(workers), dtype=params.dtype, device=params.device),
                state={"params": params, "buffers": buffers},
                gradient_passes=np.zeros(len(workers), np.int64),
            )
            with torch.inference_mode(False), torch.enable_grad():  # Lightning turns both round during validation
                result = train_cohort(self.fine_tuning, work, {}, server.chunk, server.ranks)
            parts.append(self._score(model.params - result.delta, result.buffers, workers))
        return WorkerScores.together(parts)

    def _chunks(self) -> Iterator[np.ndarray]:
        workers, size = with_samples(self.tests), self.server.config.cohort_size
        return (workers[first : first + size] for first in range(0, len(workers), size))

    def _score(self, params: Stack, buffers: Stack, workers: np.ndarray) -> WorkerScores:
        return score_own_models(
            params,
            buffers,
            self.samples,
            self.tests,
            workers,
            self.server.threads,
            self.server.ranks,
            is_stacked=self.is_stacked,
        )


def summary(scores: WorkerScores, sizes: np.ndarray) -> dict[str, float]:
    """Mean, spread and worst tenth of workers' accuracies, and their means by thirds of workers ordered by size."""
    accuracy = scores.accuracy
    worst = np.sort(accuracy)[: math.ceil(WORST * len(accuracy))]
    by_size = np.array_split(accuracy[np.argsort(sizes[scores.workers], kind="stable")], 3)
    names = (metrics.SMALL_WORKERS, metrics.MEDIUM_WORKERS, metrics.LARGE_WORKERS)
    return {
        metrics.WORKERS_SCORED: len(accuracy),
        metrics.WORKERS_LOSS: float(scores.mean_loss.mean()),
        metrics.WORKERS_ACCURACY: float(accuracy.mean()),
        metrics.WORKERS_STD: float(accuracy.std()),
        metrics.WORST_WORKERS: float(worst.mean()),
        **{name: float(part.mean()) for name, part in zip(names, by_size, strict=True) if len(part)},
    }
