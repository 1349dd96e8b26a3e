"""Local training of a stack of workers: I steps of SGD along the algorithm's direction.

The same steps serve both engines; what differs is how the gradients of a stack are taken (``Objective``).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, LocalRun, LocalStep
from fl_platform.data.images import Images
from fl_platform.data.streams import BatchPlan, BatchStreams
from fl_platform.flat import Stack, Vector
from fl_platform.models.network import Network
from fl_platform.seeding import stream_keys


@dataclass(frozen=True)
class Job:
    """What a stack of workers starts from."""

    round: int
    workers: np.ndarray
    plan: BatchPlan
    global_params: Vector
    global_buffers: Vector
    buffers: Stack | Vector  # what each worker's running statistics start from
    relative_sizes: Vector  # n_i / mean n
    state: Mapping[str, Stack]


@dataclass
class LocalResult:
    """What a stack of workers ends with."""

    params: Stack
    buffers: Stack
    loss: Tensor  # (S,), mean over the local steps
    outcome: dict[str, Stack]  # for every name the algorithm keeps or sends
    records: "Records"
    gradient_passes: int


class Records:
    """Figures recorded by worker hooks, reduced over steps and workers without touching the host."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, list[Tensor]]] = {}

    def record(self, name: str, values: Tensor, how: str = "mean") -> None:
        self._values.setdefault(name, (how, []))[1].append(values.detach().reshape(-1).double())

    def extend(self, other: "Records") -> None:
        for name, (how, values) in other._values.items():
            self._values.setdefault(name, (how, []))[1].extend(values)

    def reduced(self) -> dict[str, float]:
        reducers = {"mean": torch.mean, "max": torch.max, "sum": torch.sum}
        return {name: float(reducers[how](torch.cat(values))) for name, (how, values) in self._values.items()}


class Objective(ABC):
    """The algorithm's local loss on one batch of every worker of a stack, as a function of the parameters."""

    _job: Job
    passes = 0
    """Gradients taken so far, counted once for the whole stack."""

    @abstractmethod
    def gradient(
        self, params: Stack | Vector, buffers: Stack | Vector, updates_statistics: bool, out: Stack | None = None
    ) -> tuple[Stack, Tensor]:
        """(S, d) gradients and (S,) losses at each worker's own parameters, or at one point for all."""

    def gradient_at(self, params: Stack | Vector) -> Stack:
        """Gradients elsewhere; running statistics are left alone."""
        return self.gradient(params, self._job.global_buffers, updates_statistics=False)[0]


class LocalTraining:
    """The local steps of stacks of workers, given data, streams and rates."""

    def __init__(
        self,
        objective: "MakeObjective",
        network: Network,
        algorithm: Algorithm,
        images: Images,
        streams: BatchStreams,
        *,
        local_lr: float,
        local_steps: int,
        seed: int,
    ) -> None:
        self._objective, self.network, self.algorithm = objective, network, algorithm
        self.images, self.streams = images, streams
        self.local_lr, self.local_steps, self.seed = local_lr, local_steps, seed

    def train(self, job: Job) -> LocalResult:
        size = len(job.workers)
        params = job.global_params.repeat(size, 1)
        previous, spare = params, torch.empty_like(params)
        buffers = job.buffers.expand(size, -1).clone()
        records, losses, passes = Records(), [], 0
        batches = self._batches(job.plan, job.round, job.workers, "step")
        for index, batch in enumerate(batches):
            objective = self._objective(self, job, batch)
            gradient, loss = objective.gradient(params, buffers, updates_statistics=True)
            step = LocalStep(
                index=index,
                params=params,
                previous_params=previous,
                global_params=job.global_params,
                gradient=gradient,
                relative_sizes=job.relative_sizes,
                state=job.state,
                gradient_at=objective.gradient_at,
                record=records.record,
            )
            direction = self.algorithm.local_direction(step)
            room = previous if index else spare  # x_{tau-1} is not needed any more
            previous, params = params, torch.add(params, direction, alpha=-self.local_lr, out=room)
            losses.append(loss)
            passes += objective.passes
        run = LocalRun(
            params=params,
            buffers=buffers,
            global_params=job.global_params,
            state=job.state,
            local_lr=self.local_lr,
            local_steps=self.local_steps,
            full_gradient=lambda at: self._full_gradient(job, at),
            round_gradient=lambda at: sum_of(self._objective(self, job, batch).gradient_at(at) for batch in batches) / len(batches),
        )
        outcome = dict(sorted(self.algorithm.finish_local(run).items()))  # ranks gather them in one order
        return LocalResult(params, buffers, torch.stack(losses).mean(0), outcome, records, passes)

    def _batches(self, plan: BatchPlan, round: int, workers: np.ndarray, purpose: str) -> "list[Batch]":
        """The plan's batches with their keys, each cut to the longest in its step, moved to the device at once."""
        device = self.images.device
        keys = torch.from_numpy(stream_keys(len(plan.indices), workers, self.seed, purpose, round)).to(device)
        indices = torch.from_numpy(plan.indices).to(device)
        counts = torch.from_numpy(plan.counts).to(device)
        batches = []
        for step, lengths in enumerate(plan.counts):
            batches.append(Batch(indices[step, :, : lengths.max()], keys[step], counts[step], lengths))
        return batches

    def _full_gradient(self, job: Job, at: Vector) -> Stack:
        """Batch gradients over a worker's whole data, weighted by batch size; training mode, statistics untouched."""
        total = torch.zeros(len(job.workers), at.numel(), dtype=at.dtype, device=at.device)
        samples = torch.zeros(len(job.workers), 1, dtype=at.dtype, device=at.device)
        for number, plan in enumerate(self.streams.full_pass(job.workers)):
            [batch] = self._batches(plan, job.round, job.workers, f"full{number}")
            counts = torch.from_numpy(plan.counts[0]).to(at)[:, None]
            total += counts * self._objective(self, job, batch).gradient_at(at)
            samples += counts
        return total / samples


def sum_of(stacks: Iterable[Stack]) -> Stack:
    return reduce(torch.add, stacks)


@dataclass(frozen=True)
class Batch:
    """Indices (S, B) into the training set, keys (S,), and how many of each row are real."""

    indices: Tensor
    keys: Tensor
    counts: Tensor
    lengths: np.ndarray  # the same on the host


MakeObjective = Callable[[LocalTraining, Job, Batch], Objective]


def part_of_job(job: Job, rows: slice) -> Job:
    """Some workers of a job."""
    return replace(
        job,
        workers=job.workers[rows],
        plan=BatchPlan(job.plan.indices[:, rows], job.plan.counts[:, rows]),
        buffers=job.buffers[rows] if job.buffers.dim() == 2 else job.buffers,
        relative_sizes=job.relative_sizes[rows],
        state={name: stack[rows] for name, stack in job.state.items()},
    )


def part_of_batch(batch: Batch, row: int) -> Batch:
    """One worker's samples, without padding."""
    length = int(batch.lengths[row])
    own = slice(row, row + 1)
    return Batch(batch.indices[own, :length], batch.keys[own], batch.counts[own], batch.lengths[own])
