"""Local training of a stack of workers: steps of SGD along the algorithm's direction.

The same steps serve both engines; what differs is how the gradients of a stack are computed (``Objective``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_platform.algorithms.base import (
    Algorithm,
    LocalRun,
    LocalStart,
    LocalStep,
    LocalSurvey,
    has_default,
)
from fl_platform.algorithms.inputs import per_worker
from fl_platform.algorithms.returned import check_names, check_pair, check_returned
from fl_platform.data.device_samples import DeviceSamples
from fl_platform.data.streams import BatchPlan, BatchStreams
from fl_platform.engines.local_sgd import LocalSGD
from fl_platform.engines.records import Records
from fl_platform.engines.transfer import to_device
from fl_platform.engines.whole_workers import WholeTraining
from fl_platform.engines.work import LoadedPlan, LocalResult, LocalWork, part_of
from fl_platform.kernels.convolution import compile_convolution
from fl_platform.kernels.dropout import compile_dropout
from fl_platform.kernels.linear import compile_linear
from fl_platform.kernels.perceptron import Perceptron
from fl_platform.kernels.pooling import compile_pooling
from fl_platform.kernels.recycled import Recycler
from fl_platform.kernels.whole_workers import Source, WholeWorkers
from fl_platform.models.flat import Stack, Vector
from fl_platform.models.network import Network
from fl_platform.seeding import stream_keys


class Objective(ABC):
    """The algorithm's local loss on the batches of a stack of workers, as a function of the parameters."""

    takes_whole_workers: ClassVar[bool] = False
    """Whether kernels may train workers that need no objective."""

    @abstractmethod
    def __init__(self, training: "LocalTraining", work: LocalWork, plan: LoadedPlan) -> None:
        """For the batches of ``plan``."""

    @abstractmethod
    def load(self, step: int) -> None:
        """Make the batch of a step the current one."""

    @abstractmethod
    def gradient(
        self, params: Stack | Vector, buffers: Stack | Vector, updates_statistics: bool
    ) -> tuple[Stack, Tensor]:
        """(S, d) gradients on the current batch, at each worker's own parameters or at one point for all; (S,) losses.

        Running statistics in ``buffers`` are updated in place, or left alone.
        """

    @abstractmethod
    def gradient_at(self, params: Stack | Vector) -> Stack:
        """Gradients elsewhere; running statistics are left alone."""

    def descend(self, params: Stack, buffers: Stack, rate: float) -> Tensor | None:
        """All steps along the plain gradient in one call, in place: (steps, S) losses. None without a kernel for it."""
        return None


class LocalTraining:
    """The local steps of stacks of workers, given data, streams and rates."""

    def __init__(
        self,
        objective: type[Objective],
        network: Network,
        algorithm: Algorithm,
        samples: DeviceSamples,
        streams: BatchStreams,
        *,
        sgd: LocalSGD,
        seed: int,
        memory: Recycler | None = None,
    ) -> None:
        self._objective, self.network, self.algorithm = objective, network, algorithm
        self.samples, self.streams = samples, streams
        self.sgd, self.seed = sgd, seed
        self._memory = memory or Recycler()
        is_on_cpu = samples.device.type == "cpu"
        self._perceptron = Perceptron.of(network, samples.dtype) if is_on_cpu else None
        self.whole = self._whole_training() if objective.takes_whole_workers else None
        if is_on_cpu:
            compile_pooling(network, samples.dtype)
            compile_convolution(network, samples.dtype)
            compile_dropout(network, samples.dtype)
            if self.perceptron is None:
                compile_linear(network, samples.dtype)
            elif self.whole is None or not (self.whole.is_plain or self.whole.is_projected):
                self.perceptron.compile()
        self._class_counts: Tensor | None = None  # (N, K), once an algorithm has asked for them
        self.graphs: dict[Any, Any] = {}  # captured gradients, by shapes (engines/graphed.py)

    @property
    def perceptron(self) -> Perceptron | None:
        """The kernel of the local loss, where the network and the algorithm's loss have one."""
        return self._perceptron if has_default(self.algorithm, "local_loss") else None

    def _whole_training(self) -> WholeTraining | None:
        if self.perceptron is None or self.samples.are_augmented:
            return None
        kernel = WholeWorkers.of(self.perceptron, Source.of(*self.samples.stored()))
        return None if kernel is None else WholeTraining(kernel, self.algorithm, self.sgd)

    def takes_whole_workers(self, work: LocalWork, result: LocalResult) -> bool:
        """Whether workers are trained by ``train_whole``, which takes any number of them."""
        return self.whole is not None and self.whole.suits(work, result)

    def train_whole(self, work: LocalWork, result: LocalResult, rows: slice) -> Records:
        """``train`` by a kernel, of some rows of the work."""
        assert self.whole is not None
        return self.whole.train(work, result, rows)

    def train(self, work: LocalWork, result: LocalResult, rows: slice) -> Records:
        """Train the workers and write what they end with into ``rows`` of the result; returns what hooks recorded."""
        records, size = Records(), len(work.workers)
        [plan] = self._load(work, {"step": work.plan})
        objective = self._objective(self, work, plan)
        start, buffers = self._start(work)
        params = self.empty("params", size, work)
        buffers = buffers.expand(size, -1).clone()
        remembered: dict[str, Stack] = {}
        losses = self._steps_at_once(objective, work, start, params, buffers)
        if losses is None:
            params, losses = self._steps(objective, plan, work, params.copy_(start), buffers, records, remembered)
        torch.sub(work.global_params, params, out=result.delta[rows])
        result.buffers[rows] = buffers
        result.loss[rows] = losses.mean(0) if plan.is_even else losses.sum(0) / plan.counts.gt(0).sum(0)
        self._finish(work, params, result, rows, remembered)
        return records

    def survey(self, work: LocalWork, found: Stack, rows: slice) -> None:
        """Write what the workers report before they train into ``rows`` of ``found``."""
        survey = LocalSurvey(
            global_params=work.global_params,
            state=work.state,
            full_gradient=lambda at: self._full_gradient(work, at),
            round_gradient=lambda at: self._round_gradient(work, at),
        )
        stack = self.algorithm.survey_local(survey)
        check_returned(self.algorithm, "survey_local", stack, found[rows])
        found[rows] = stack

    def _start(self, work: LocalWork) -> tuple[Stack | Vector, Stack | Vector]:
        """What the workers start from: parameters and running statistics, for each or for all."""
        start = LocalStart(work.workers, work.global_params, work.global_buffers, work.buffers, work.state)
        found = self.algorithm.start_local(start)
        likes = (work.global_params, work.global_buffers)
        check_pair(self.algorithm, "start_local", found, likes, rows=len(work.workers))
        params, buffers = found
        return params, buffers

    def _steps_at_once(
        self,
        objective: Objective,
        work: LocalWork,
        start: Stack | Vector,
        params: Stack,
        buffers: Stack,
    ) -> Tensor | None:
        """Losses as those of ``_steps``, where there is a kernel for all steps: it writes parameters and statistics."""
        if not self.sgd.is_plain or not has_default(self.algorithm, "local_loss", "local_direction"):
            return None
        return objective.descend(params.copy_(start), buffers, work.local_lr)

    def _steps(
        self,
        objective: Objective,
        plan: LoadedPlan,
        work: LocalWork,
        params: Stack,
        buffers: Stack,
        records: Records,
        remembered: dict[str, Stack],
    ) -> tuple[Stack, Tensor]:
        """The parameters after all steps along the algorithm's direction, and (steps, S) losses, zero after the last.

        x_{tau+1} = x_tau - local_lr * direction(x_tau); every x_tau is a tensor of its own. Workers are sorted by their
        number of steps: those that take step tau are the first rows, and the others keep what they have.
        """
        previous, losses = params, []
        velocity: Stack | None = None
        finished: list[Stack] = []
        state, sizes = work.state, work.relative_sizes
        for index, rows in enumerate(plan.active):
            if rows < len(params):
                finished.append(params[rows:])
                params, previous, buffers, sizes = params[:rows], previous[:rows], buffers[:rows], sizes[:rows]
                state, velocity = part_of(state, slice(rows)), None if velocity is None else velocity[:rows]
            objective.load(index)
            gradient, loss = objective.gradient(params, buffers, updates_statistics=True)
            step = LocalStep(
                index=index,
                params=params,
                previous_params=previous,
                global_params=work.global_params,
                gradient=gradient,
                local_lr=work.local_lr,
                relative_sizes=sizes,
                state=state,
                gradient_at=objective.gradient_at,
                record=records.record,
                remembered=remembered,
            )
            direction = self.algorithm.local_direction(step)
            check_returned(self.algorithm, "local_direction", direction, gradient)
            if not self.sgd.is_plain:
                direction = velocity = self.sgd.step(direction, params, velocity)
            following = torch.sub(params, direction, alpha=work.local_lr, out=self.empty("params", rows, work))
            previous, params = params, following
            losses.append(loss)
        if finished:
            params = torch.cat([params, *reversed(finished)])
            losses = [F.pad(loss, (0, len(params) - len(loss))) for loss in losses]
        return params, torch.stack(losses)

    def _finish(
        self, work: LocalWork, params: Stack, result: LocalResult, rows: slice, remembered: Mapping[str, Stack]
    ) -> None:
        run = LocalRun(
            params=params,
            buffers=result.buffers[rows],
            delta=result.delta[rows],
            global_params=work.global_params,
            state=work.state,
            local_lr=work.local_lr,
            step_counts=work.plan.steps,
            local_momentum=self.sgd.momentum,
            remembered=remembered,
            full_gradient=lambda at: self._full_gradient(work, at),
            round_gradient=lambda at: self._round_gradient(work, at),
        )
        found = self.algorithm.finish_local(run)
        check_names(self.algorithm, "finish_local", found, {*self.algorithm.keeps, *self.algorithm.sends})
        for name, stack in found.items():
            check_returned(self.algorithm, "finish_local", stack, result.outcome[name][rows])
            result.outcome[name][rows] = stack

    def class_counts(self, work: LocalWork, num_classes: int) -> Tensor:
        """(S, num_classes): the training samples of each class that the workers have."""
        if self._class_counts is None:
            partition, labels = self.streams.partition, self.samples.host_labels.numpy()
            owned = (labels[partition.of(worker)] for worker in range(partition.num_workers))
            counted = np.stack([np.bincount(mine, minlength=num_classes) for mine in owned])
            self._class_counts = torch.from_numpy(counted).to(work.global_params)
        return self._class_counts[to_device([work.workers], self.samples.device)[0]]

    def empty(self, name: str, rows: int, work: LocalWork) -> Stack:
        """Uninitialised vectors of parameters, in memory that nobody holds."""
        return self._memory.empty(name, (rows, work.global_params.numel()), work.global_params)

    def _load(self, work: LocalWork, plans: Mapping[str, BatchPlan]) -> list[LoadedPlan]:
        """Plans, by the name of the random stream of their dropout and augmentation, to the device in one copy."""
        device = self.samples.device
        draws = [
            partial(stream_keys, len(plan.counts), work.workers, self.seed, purpose, work.round)
            for purpose, plan in plans.items()
        ]
        if device.type == "cpu":  # nothing to copy, and keys are made when asked for
            return [LoadedPlan.on_host(plan, draw) for plan, draw in zip(plans.values(), draws, strict=True)]
        arrays = [(plan.indices, plan.counts, draw()) for plan, draw in zip(plans.values(), draws, strict=True)]
        tensors = to_device([array for group in arrays for array in group], device)
        return [
            LoadedPlan(plan, tensors[first], tensors[first + 1], partial(tensors.__getitem__, first + 2))
            for first, plan in zip(range(0, len(tensors), 3), plans.values(), strict=True)
        ]

    def _round_gradient(self, work: LocalWork, at: Vector) -> Stack:
        """The mean of the gradients on each worker's own batches of this round."""
        [plan] = self._load(work, {"round": work.plan})
        objective = self._objective(self, work, plan)
        total = self._gradient_of(objective, 0, at)  # of all workers: each takes a step
        for step, rows in enumerate(plan.active[1:], start=1):
            total[:rows].add_(self._gradient_of(objective, step, at))
        return total / per_worker(work.plan.steps, total)[:, None]

    def _full_gradient(self, work: LocalWork, at: Vector) -> Stack:
        """Batch gradients over a worker's whole data, weighted by batch size; training mode, statistics untouched."""
        plans = {f"full{number}": plan for number, plan in enumerate(self.streams.full_pass(work.workers))}
        loaded = self._load(work, plans)
        counts = torch.cat([plan.counts for plan in loaded]).to(at.dtype)[:, :, None]
        gradients = (
            weighted(self._gradient_of(self._objective(self, work, loaded[number]), 0, at), counts[number], plan)
            for number, plan in enumerate(plans.values())
            if plan.counts.any()
        )
        return add_up(gradients) / counts.sum(0)

    @staticmethod
    def _gradient_of(objective: Objective, step: int, at: Vector) -> Stack:
        objective.load(step)
        return objective.gradient_at(at)


def weighted(gradients: Stack, counts: Tensor, plan: BatchPlan) -> Stack:
    """Gradients times the samples of their batches; zero for workers without one, whose padding may overflow."""
    found = counts * gradients
    return found if plan.counts.all() else torch.where(counts > 0, found, 0)


def add_up(stacks: Iterable[Stack]) -> Stack:
    """The sum of fresh stacks, written into the first."""
    return reduce(torch.Tensor.add_, stacks)
