"""Local training of a stack of workers: I steps of SGD along the algorithm's direction.

The same steps serve both engines; what differs is how a network is run on the stack (``Executor``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, LocalBatch, LocalRun, LocalStep
from fl_platform.data.images import Images
from fl_platform.data.streams import BatchPlan, BatchStreams
from fl_platform.flat import Stack, Vector
from fl_platform.models.network import Network, Output
from fl_platform.seeding import stream_keys

PASS_STRIDE = 0x1000000000000001  # sets the passes of one step apart in both halves of their dropout keys


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


class Executor(ABC):
    """How a network is run on a stack of workers."""

    def __init__(self, network: Network) -> None:
        self.network = network

    @abstractmethod
    def forward(
        self,
        params: Stack | Vector,
        buffers: Stack | Vector,
        x: Tensor,
        mask: Tensor | None,
        keys: Tensor,
        *,
        train: bool,
        updates_statistics: bool = False,
        first: int = 0,
    ) -> Output: ...


class LocalTraining:
    """The local steps of stacks of workers, given data, streams and rates."""

    def __init__(
        self,
        executor: Executor,
        algorithm: Algorithm,
        images: Images,
        streams: BatchStreams,
        *,
        local_lr: float,
        local_steps: int,
        seed: int,
    ) -> None:
        self.executor, self.algorithm = executor, algorithm
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
            objective = Objective(self, job, batch)
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
            round_gradient=lambda at: sum_of(Objective(self, job, batch).gradient_at(at) for batch in batches) / len(batches),
        )
        outcome = self.algorithm.finish_local(run)
        return LocalResult(params, buffers, torch.stack(losses).mean(0), outcome, records, passes)

    def _batches(self, plan: BatchPlan, round: int, workers: np.ndarray, purpose: str) -> "list[Batch]":
        """The plan's batches with their keys, each cut to the longest in its step, moved to the device at once."""
        device = self.images.device
        keys = torch.from_numpy(stream_keys(len(plan.indices), workers, self.seed, purpose, round)).to(device)
        indices = torch.from_numpy(plan.indices).to(device)
        counts = torch.from_numpy(plan.counts).to(device)
        batches = []
        for step, lengths in enumerate(plan.counts):
            width = lengths.max()
            padded = lengths.min() < width
            batches.append(Batch(indices[step, :, :width], keys[step], counts[step] if padded else None))
        return batches

    def _full_gradient(self, job: Job, at: Vector) -> Stack:
        """Batch gradients over a worker's whole data, weighted by batch size; training mode, statistics untouched."""
        total = torch.zeros(len(job.workers), at.numel(), dtype=at.dtype, device=at.device)
        samples = torch.zeros(len(job.workers), 1, dtype=at.dtype, device=at.device)
        for number, plan in enumerate(self.streams.full_pass(job.workers)):
            if not plan.counts.any():  # a stack of one whose worker has no more data
                continue
            [batch] = self._batches(plan, job.round, job.workers, f"full{number}")
            counts = torch.from_numpy(plan.counts[0]).to(at)[:, None]
            total += counts * Objective(self, job, batch).gradient_at(at)
            samples += counts
        return total / samples


def sum_of(stacks: Iterable[Stack]) -> Stack:
    return reduce(torch.add, stacks)


@dataclass(frozen=True)
class Batch:
    """Indices (S, B) into the training set, keys (S,), and how many of each row are real (None: all)."""

    indices: Tensor
    keys: Tensor
    counts: Tensor | None


class Objective:
    """The algorithm's local loss on one batch, as a function of the parameters."""

    def __init__(self, training: LocalTraining, job: Job, batch: Batch) -> None:
        self._algorithm, self._executor, self._job, self._batch = training.algorithm, training.executor, job, batch
        self._x = training.images.batch(batch.indices, batch.keys)
        self._labels = training.images.labels(batch.indices)
        self._mask: Tensor | None = None
        self._weights: Tensor | None = None
        if batch.counts is not None:
            counts = batch.counts[:, None]
            self._mask = torch.arange(batch.indices.shape[1], device=counts.device) < counts
            self._weights = self._mask.to(self._x.dtype) / counts.clamp(min=1)
        self.passes = 0
        self._forwards = 0

    def gradient(self, params: Stack | Vector, buffers: Stack | Vector, updates_statistics: bool) -> tuple[Stack, Tensor]:
        """(S, d) gradients and (S,) losses."""
        stack = params if params.dim() == 2 else params.expand(len(self._labels), -1)
        leaf = stack.detach().requires_grad_()
        output = self._forward(leaf, buffers, train=True, updates_statistics=updates_statistics)
        loss = self._algorithm.local_loss(self._view(output))
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        self.passes += 1
        return gradient, loss.detach()

    def gradient_at(self, params: Stack | Vector) -> Stack:
        return self.gradient(params, self._job.global_buffers, updates_statistics=False)[0]

    def _forward(self, params: Stack | Vector, buffers: Stack | Vector, **how: bool) -> Output:
        return self._executor.forward(params, buffers, self._x, self._mask, self._next_keys(), **how)

    def _next_keys(self) -> Tensor:
        """Dropout keys of the next training pass; the first pass of a step has the same ones in every algorithm."""
        number = self._forwards
        self._forwards += 1
        return self._batch.keys + PASS_STRIDE * number if number else self._batch.keys

    def _view(self, output: Output) -> LocalBatch:
        return LocalBatch(
            labels=self._labels,
            logits=output.logits,
            features=output.features,
            activations=output.activations,
            weights=self._weights,
            state=self._job.state,
            global_params=self._job.global_params,
            global_buffers=self._job.global_buffers,
            frozen_features=self._frozen_features,
            resume_at=self._resume_at,
        )

    def _frozen_features(self, params: Stack | Vector, buffers: Stack | Vector) -> Tensor:
        with torch.no_grad():
            features = self._executor.forward(params, buffers, self._x, self._mask, self._batch.keys, train=False).features
        assert features is not None
        return features

    def _resume_at(self, block: int, activation: Tensor, params: Vector) -> Tensor:
        buffers = self._job.global_buffers
        return self._executor.forward(params, buffers, activation, self._mask, self._next_keys(), train=True, first=block).logits
