"""Local training of a stack of workers: I steps of SGD along the algorithm's direction.

The same steps serve both engines; what differs is how the gradients of a stack are taken (``Objective``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, LocalRun, LocalStep
from fl_platform.data.images import Images
from fl_platform.data.streams import BatchPlan, BatchStreams
from fl_platform.kernels.perceptron import Chain
from fl_platform.models.flat import Layout, Scratch, Stack, Vector
from fl_platform.models.network import Network, Weights
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

    def part(self, rows: slice) -> "Job":
        """Some of the workers."""
        return replace(
            self,
            workers=self.workers[rows],
            plan=BatchPlan(self.plan.indices[:, rows], self.plan.counts[:, rows]),
            buffers=self.buffers[rows] if self.buffers.dim() == 2 else self.buffers,
            relative_sizes=self.relative_sizes[rows],
            state={name: stack[rows] for name, stack in self.state.items()},
        )


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
        """One number a name; reads the device."""
        return {name: float(getattr(torch, how)(torch.cat(values))) for name, (how, values) in self._values.items()}


@dataclass
class LocalResult:
    """What the workers of a job end with, a row each; the next round is written over it."""

    delta: Stack  # x_t - x_i
    buffers: Stack
    loss: Tensor  # (S,), mean over the local steps
    outcome: dict[str, Stack]  # for every name the algorithm keeps or sends
    records: Records = field(default_factory=Records)
    gradient_passes: int = 0  # of each worker

    @staticmethod
    def for_job(job: Job, widths: Mapping[str, int], scratch: Scratch) -> "LocalResult":
        """Room to be filled in; ``widths`` are the lengths of what a worker keeps and sends, by name."""
        like, count = job.global_params, len(job.workers)

        def room(name: str, *width: int) -> Tensor:
            return scratch.take(name, (count, *width), like.dtype, like.device)

        return LocalResult(
            delta=room("delta", like.numel()),
            buffers=room("buffers", job.global_buffers.numel()),
            loss=room("loss"),
            outcome={name: room(f"outcome.{name}", width) for name, width in widths.items()},
        )

    @property
    def stacks(self) -> list[Tensor]:
        return [self.delta, self.buffers, self.loss, *self.outcome.values()]


class Objective(ABC):
    """The algorithm's local loss on the batches of a stack of workers, as a function of the parameters."""

    passes = 0
    """Gradients taken so far, counted once for the whole stack."""

    @abstractmethod
    def __init__(self, training: "LocalTraining", job: Job, plan: BatchPlan, purpose: str) -> None:
        """For the batches of ``plan``; ``purpose`` names the random stream of their dropout and augmentation."""

    @abstractmethod
    def load(self, step: int) -> None:
        """Make the batch of a step the current one."""

    @abstractmethod
    def gradient(
        self, params: Stack | Vector, buffers: Stack | Vector, updates_statistics: bool
    ) -> tuple[Stack, Tensor]:
        """(S, d) gradients, which the next step may overwrite, and (S,) losses.

        They are taken at each worker's own parameters, or at one point for all.
        """

    def descend(self, params: Stack, buffers: Stack, rate: float) -> Tensor | None:
        """All steps along the plain gradient at once, in place: (steps, S) losses; None if that is not to be had."""
        return None

    @abstractmethod
    def gradient_at(self, params: Stack | Vector) -> Stack:
        """Gradients elsewhere; running statistics are left alone."""


class LocalTraining:
    """The local steps of stacks of workers, given data, streams and rates."""

    def __init__(
        self,
        objective: type[Objective],
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
        self._rooms: dict[tuple[str, int], Stack] = {}
        self._scratch = Scratch()
        self._leaves: dict[tuple[int, torch.Size], Weights] = {}
        self._views: dict[int, Weights] = {}
        self.chain = Chain.of(network) if algorithm.has_plain_loss else None

    def train(self, job: Job, result: LocalResult, rows: slice) -> Records:
        """Train the workers of the job and write what they end with into ``rows`` of the result; returns figures."""
        size, records = len(job.workers), Records()
        params = self.room("params", size, job.global_params).copy_(job.global_params)
        buffers = self.room("buffers", size, job.global_buffers).copy_(job.buffers)
        objective = self._objective(self, job, job.plan, "step")
        losses = objective.descend(params, buffers, self.local_lr) if self.algorithm.has_plain_steps else None
        if losses is None:
            params, losses = self._steps(objective, job, params, buffers, records)
        torch.sub(job.global_params, params, out=result.delta[rows])
        result.buffers[rows] = buffers
        result.loss[rows] = losses.mean(0)
        result.gradient_passes = objective.passes  # the same for every worker
        self._finish(job, params, result, rows)
        return records

    def _steps(
        self, objective: Objective, job: Job, params: Stack, buffers: Stack, records: Records
    ) -> tuple[Stack, Tensor]:
        """The parameters after all steps along the algorithm's direction, and (steps, S) losses."""
        previous, spare = params, self.room("spare", len(params), job.global_params)
        losses = []
        for index in range(self.local_steps):
            objective.load(index)
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
        return params, torch.stack(losses)

    def _finish(self, job: Job, params: Stack, result: LocalResult, rows: slice) -> None:
        run = LocalRun(
            params=params,
            buffers=result.buffers[rows],
            delta=result.delta[rows],
            global_params=job.global_params,
            state=job.state,
            local_lr=self.local_lr,
            local_steps=self.local_steps,
            full_gradient=lambda at: self._full_gradient(job, at),
            round_gradient=lambda at: self._round_gradient(job, at),
        )
        for name, stack in self.algorithm.finish_local(run).items():
            result.outcome[name][rows] = stack

    def room(self, name: str, size: int, like: Vector) -> Stack:
        """A (size, d) scratch stack that stays in place, and in the cache, from worker to worker."""
        key = (name, size)
        if key not in self._rooms:
            self._rooms[key] = like.new_empty(size, like.numel())
        return self._rooms[key]

    def image_room(self, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Scratch for the images of one worker, which the next may overwrite."""
        return self._scratch.take("images", shape, dtype, device)

    def leaves(self, params: Stack | Vector) -> Weights:
        """Differentiable views of each parameter; those of scratch stacks, which stay in place, are made once."""
        key = (params.data_ptr(), params.shape)
        if key in self._leaves:
            return self._leaves[key]
        views = [view.detach().requires_grad_() for view in self.network.parameters.views(params)]
        if self._is_room(key[0]):
            self._leaves[key] = views
        return views

    def views(self, flat: Stack | Vector, layout: Layout) -> Weights:
        """Each parameter or buffer of a single worker; those of scratch stacks are made once."""
        key = flat.data_ptr()
        if key in self._views:
            return self._views[key]
        views = layout.views(flat.view(-1))
        if self._is_room(key):
            self._views[key] = views
        return views

    def _is_room(self, pointer: int) -> bool:
        return any(room.data_ptr() == pointer for room in self._rooms.values())

    def keys(self, plan: BatchPlan, job: Job, purpose: str) -> Tensor:
        """(steps, S) keys of the plan's batches, on the device."""
        keys = stream_keys(len(plan.indices), job.workers, self.seed, purpose, job.round)
        return torch.from_numpy(keys).to(self.images.device)

    def _round_gradient(self, job: Job, at: Vector) -> Stack:
        objective = self._objective(self, job, job.plan, "round")
        gradients = (self._gradient_of(objective, step, at) for step in range(self.local_steps))
        return add_up(gradients) / self.local_steps

    def _full_gradient(self, job: Job, at: Vector) -> Stack:
        """Batch gradients over a worker's whole data, weighted by batch size; training mode, statistics untouched."""
        plans = list(self.streams.full_pass(job.workers))
        counts = torch.from_numpy(np.concatenate([plan.counts for plan in plans])).to(at)[:, :, None]
        gradients = (
            counts[number] * self._gradient_of(self._objective(self, job, plan, f"full{number}"), 0, at)
            for number, plan in enumerate(plans)
            if plan.counts.any()
        )
        return add_up(gradients) / counts.sum(0)

    @staticmethod
    def _gradient_of(objective: Objective, step: int, at: Vector) -> Stack:
        objective.load(step)
        return objective.gradient_at(at).clone()


def add_up(stacks: Iterable[Stack]) -> Stack:
    return reduce(torch.Tensor.add_, stacks)
