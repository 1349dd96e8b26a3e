"""One federated round: the body of Algorithm 1 of the GradMA paper, with the rules of every method behind hooks."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, LocalStart, Start, Updates, has_default
from fl_platform.algorithms.returned import HookResultError, check_returned, diagnostics_of
from fl_platform.config.schema import Config
from fl_platform.data.streams import BatchStreams
from fl_platform.engines.cohort import TrainingPool, survey_cohort, train_cohort
from fl_platform.engines.ranks import Ranks
from fl_platform.engines.transfer import to_device
from fl_platform.engines.work import LocalResult, LocalWork
from fl_platform.federation.compression import compress, encoded_bytes, error_memory
from fl_platform.federation.faults import finite_rows, inject_faults
from fl_platform.federation.pool import Cohort, WorkerPool
from fl_platform.federation.schedules import local_rate, server_rate
from fl_platform.federation.state import WorkerStates
from fl_platform.federation.uploads import update_sent_as, without_private
from fl_platform.federation.work import local_steps
from fl_platform.federation.worker_writes import Watch
from fl_platform.models.flat import Vector
from fl_platform.runs import metrics

RUNNING_STATISTICS = "running_statistics"
"""The state of workers that keep their own (``buffers=local``)."""


class Model(NamedTuple):
    """A global model. A round makes a new one and leaves the tensors of the old one as they are."""

    params: Vector
    buffers: Vector


@dataclass(frozen=True)
class Server:
    """What stays the same object from round to round."""

    config: Config
    algorithm: Algorithm
    pool: WorkerPool
    streams: BatchStreams
    members: BatchStreams  # of the workers by themselves, also where one has the data of all
    sizes: np.ndarray  # samples of every worker
    size_table: Tensor  # (2, N) on the training device: samples of every worker, and these relative to their mean
    states: WorkerStates
    threads: TrainingPool
    chunk: int | None  # workers trained at a time; None for all
    initial: Model  # x_0
    ranks: Ranks

    def sizes_of(self, workers: np.ndarray) -> Tensor:
        """(2, S): rows of the table of sizes, for some workers."""
        return self.size_table[:, to_device([workers], self.size_table.device)[0]]

    def start(self, model: Model, workers: np.ndarray) -> LocalStart:
        """What the workers know before a round: the model, and what each of them has kept."""
        starts = {
            Start.GLOBAL_PARAMS: model.params,
            Start.GLOBAL_BUFFERS: model.buffers,
            Start.INITIAL_PARAMS: self.initial.params,
            Start.INITIAL_BUFFERS: self.initial.buffers,
        }
        state = self.states.gather(workers, starts, {*self.algorithm.keeps, RUNNING_STATISTICS})
        return LocalStart(workers, *model, state.pop(RUNNING_STATISTICS, model.buffers), state)


def size_table(sizes: np.ndarray, like: Tensor) -> Tensor:
    """(2, N) of the type and on the device of ``like``: samples of every worker, and these relative to their mean."""
    return torch.from_numpy(np.stack([sizes, sizes * len(sizes) / sizes.sum()])).to(like)


@dataclass(frozen=True)
class Round:
    """What a round leaves."""

    model: Model
    logged: dict[str, Any]  # metrics, by name
    num_bytes: int  # sent to and by workers
    is_diverged: bool = False


def federated_round(server: Server, model: Model, round: int) -> Round:
    """Carry out one round and return the new global model, with the metrics to log.

    Algorithm 1 of the paper                                                  here
      8  the server samples S_t and transmits x_t                             pool.sample
      9  counter, D, buf, new_buf <- mem_red(m, S_t, counter, D, ...)         algorithm.begin_round
     12  x_{t+1}^(i) = Worker_Update(x_t^(i), x_t, eta_l, I) for i in S_t     local_work
     13  each worker sends d^(i) = x_t - x_{t+1}^(i)                          send (compressed), receive (with faults)
     16  D, x_{t+1}, m~_{t+1} = Server_Update([d^(i)], m~_t, D, eta_g, ...)   aggregate, server_step

    A round to which nobody reports changes nothing, unless the method ``steps_alone``; one whose mean update is not
    finite is not applied.
    """
    cohort = server.pool.sample(round)
    logged, num_bytes = cohort_metrics(cohort, round), bytes_sent(server, model, cohort)
    if len(cohort.reporting) == 0:
        return Round(step_alone(server, model, round, logged), logged, num_bytes)
    server.algorithm.begin_round(cohort.reporting, round)
    result = local_work(server, model, cohort.reporting, round)
    result = receive(server, send(server, model, result, round), round, logged)
    if len(result.workers) == 0:
        return Round(step_alone(server, model, round, logged), logged, num_bytes)
    updates = aggregate(server, model, result, round)
    logged |= update_metrics(updates, result)
    if not math.isfinite(logged[metrics.UPDATE_NORM]) or is_spoilt(server, *updates.sent.values()):
        return Round(model, logged, num_bytes, is_diverged=True)
    model = server_step(server, model, updates, result)
    keep_states(server, result)
    logged |= diagnostics_of(server.algorithm)
    is_diverged = not bool(torch.isfinite(model.params.sum())) or is_spoilt(server, model.buffers)
    return Round(model, logged, num_bytes, is_diverged)


def is_spoilt(server: Server, *values: Tensor) -> bool:
    """Whether faults made numbers infinite that are finite otherwise; runs without faults are not looked at."""
    return server.config.faults.kind != "none" and not all(bool(torch.isfinite(value).all()) for value in values)


def cohort_metrics(cohort: Cohort, round: int) -> dict[str, Any]:
    """Who takes part."""
    return {
        metrics.ROUND: round,
        metrics.COHORT_SIZE: len(cohort.reporting),
        metrics.COHORT: cohort.reporting.tolist(),
    }


def bytes_sent(server: Server, model: Model, cohort: Cohort) -> int:
    """Models down to every sampled worker, updates up from those that report; statistics travel when averaged."""
    shared = model.params.numel() - server.algorithm.num_private
    vector = shared * model.params.element_size()
    statistics = model.buffers.numel() * model.buffers.element_size()
    if server.config.buffers != "average" or not server.algorithm.uploads:
        statistics = 0
    upload = encoded_bytes(shared, model.params.element_size(), server.config.compression)
    down, up = server.algorithm.downloads, server.algorithm.uploads
    survey = 0 if has_default(server.algorithm, "survey_local") else 1  # one of the uploads, never compressed
    sent = (up - survey) * upload + survey * vector + statistics
    return len(cohort.sampled) * (down * vector + statistics) + len(cohort.reporting) * sent


def local_work(server: Server, model: Model, workers: np.ndarray, round: int) -> LocalResult:
    """Train the workers from the global model, each with its next batches and what it kept; longest work first.

    Raises WorkerWriteError when a worker hook wrote to the algorithm or x_t: what it wrote would depend on the engine.
    """
    steps = local_steps(server.config, server.members, workers, round)
    if server.algorithm.pools_data:
        workers, steps = np.zeros(1, np.int64), steps.sum(keepdims=True)
    order = np.argsort(-steps, kind="stable")
    workers, steps = workers[order], steps[order]
    start = server.start(model, workers)
    work = LocalWork(
        round=round,
        workers=workers,
        plan=server.streams.draw(workers, steps),
        local_lr=local_rate(server.config, round),
        global_params=model.params,
        global_buffers=model.buffers,
        buffers=start.buffers,
        relative_sizes=server.sizes_of(workers)[1],
        state=start.state,
        gradient_passes=np.zeros(len(workers), np.int64),
    )
    if not has_default(server.algorithm, "survey_local"):
        first_exchange(server, work)
    watch = Watch(server.algorithm, global_params=model.params, global_buffers=model.buffers)
    result = train_cohort(server.threads, work, outcome_widths(server.algorithm, model), server.chunk, server.ranks)
    watch.check()
    return result


def first_exchange(server: Server, work: LocalWork) -> None:
    """Give the algorithm the mean of what the workers report about x_t before they train."""
    watch = Watch(server.algorithm, global_params=work.global_params)
    reports = survey_cohort(server.threads, work, server.chunk, server.ranks)
    watch.check()
    server.algorithm.receive_survey(weights_by(server, work.relative_sizes) @ reports)


def outcome_widths(algorithm: Algorithm, model: Model) -> dict[str, int]:
    """The lengths of what a worker keeps and sends besides its update, by name."""
    keeps = algorithm.keeps
    return {
        name: len(model.buffers if name in keeps and keeps[name].is_buffers else model.params)
        for name in sorted({*keeps, *algorithm.sends})
    }


def send(server: Server, model: Model, result: LocalResult, round: int) -> LocalResult:
    """What the workers send: their vectors without what stays with them, or short forms of these."""
    result = without_private(result, server.algorithm)
    if server.config.compression.name == "none":
        return result
    names = error_memory(server.algorithm, server.config.compression)
    memory = server.states.gather(result.workers, {Start.GLOBAL_PARAMS: model.params}, names)
    return compress(result, memory, server.algorithm, server.config, round)


def receive(server: Server, result: LocalResult, round: int, logged: dict[str, Any]) -> LocalResult:
    """What arrives at the server: with the configured faults, and without workers it rejects; both are counted."""
    faults = server.config.faults
    if faults.kind != "none":
        sent_as = update_sent_as(server.algorithm)
        result, logged[metrics.FAULTY_WORKERS] = inject_faults(result, server.config, round, sent_as)
    if faults.reject_nonfinite:
        rows = finite_rows(result)
        logged[metrics.REJECTED_WORKERS] = len(result.workers) - len(rows)
        result = result.only(rows)
    return result


def aggregate(server: Server, model: Model, result: LocalResult, round: int) -> Updates:
    """The updates with their weights in an average: 1/S each, or by the workers' samples."""
    sizes = server.sizes_of(result.workers)[0]
    weights = weights_by(server, sizes)
    if server.config.aggregation == "uniform":
        population_weights = torch.full_like(sizes, 1 / len(server.sizes))
    else:
        population_weights = sizes / int(server.sizes.sum())
    return Updates(
        round=round,
        workers=result.workers,
        delta=result.delta,
        weights=weights,
        population_weights=population_weights,
        sent={name: result.outcome[name] for name in server.algorithm.sends},
        global_params=model.params,
        step_counts=result.local_steps,
        local_lr=local_rate(server.config, round),
        local_momentum=server.config.local_momentum,
    )


def weights_by(server: Server, sizes: Tensor) -> Vector:
    """Weights in an average of workers with so many samples, or such multiples of the mean."""
    return torch.full_like(sizes, 1 / len(sizes)) if server.config.aggregation == "uniform" else sizes / sizes.sum()


def update_metrics(updates: Updates, result: LocalResult) -> dict[str, Any]:
    """Loss, length of the mean update, and what worker hooks recorded; the device is read once for all of them."""
    logged = {
        metrics.TRAIN_LOSS: result.loss.mean(),
        metrics.UPDATE_NORM: torch.linalg.vector_norm(updates.mean_delta),
        **result.records.reduced(),
    }
    device = result.loss.device
    values = torch.stack([value.to(device, torch.float64) for value in logged.values()]).tolist()
    spent = {
        metrics.LOCAL_STEPS: float(result.local_steps.mean()),
        metrics.GRADIENT_PASSES: int(result.gradient_passes.sum()),
    }
    return dict(zip(logged, values, strict=True)) | spent


def server_step(server: Server, model: Model, updates: Updates, result: LocalResult) -> Model:
    """x_{t+1} = x_t - server_lr * direction; running statistics are averaged unless they stay on the server."""
    direction = direction_of(server, updates)
    params = torch.sub(model.params, direction, alpha=server_rate(server.config, updates.round))
    buffers = model.buffers if server.config.buffers == "server" else updates.average(result.buffers)
    return Model(params, buffers)


def direction_of(server: Server, updates: Updates) -> Vector:
    """Where the server goes, from what its method sees of the updates."""
    algorithm = server.algorithm
    seen = algorithm.receive_updates(updates)
    if not isinstance(seen, Updates):
        raise HookResultError(algorithm, "receive_updates", f"a {type(seen).__name__}", "Updates")
    direction = algorithm.server_direction(seen)
    check_returned(algorithm, "server_direction", direction, updates.global_params)
    return direction


def step_alone(server: Server, model: Model, round: int, logged: dict[str, Any]) -> Model:
    """The server's step in a round without updates: none, or that of a method whose noise must not be left out."""
    if not server.algorithm.steps_alone:
        return model
    none = model.params.new_empty(0)
    direction = direction_of(
        server,
        Updates(
            round=round,
            workers=np.empty(0, np.int64),
            delta=model.params.new_empty(0, len(model.params)),
            weights=none,
            population_weights=none,
            sent={},
            global_params=model.params,
            step_counts=np.empty(0, np.int64),
            local_lr=local_rate(server.config, round),
            local_momentum=server.config.local_momentum,
        ),
    )
    logged |= diagnostics_of(server.algorithm)
    params = torch.sub(model.params, direction, alpha=server_rate(server.config, round))
    return Model(params, model.buffers)


def keep_states(server: Server, result: LocalResult) -> None:
    """Store what the workers keep for their next round."""
    names = {**server.algorithm.keeps, **error_memory(server.algorithm, server.config.compression)}
    kept = {name: result.outcome[name] for name in names}
    if server.config.buffers == "local":
        kept[RUNNING_STATISTICS] = result.buffers
    server.states.scatter(result.workers, kept)
