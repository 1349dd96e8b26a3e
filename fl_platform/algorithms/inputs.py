"""What the hooks of an algorithm are given: the federation, a start, a batch, a step, a finished stack, the updates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_platform.models.flat import Layout, Stack, Vector
from fl_platform.qp import Solution
from fl_platform.qp.projection import Segments


class Processes(Protocol):
    """The processes that share a federation."""

    @property
    def size(self) -> int: ...

    @property
    def reduce(self) -> Callable[[Tensor], Tensor] | None:
        """Sums a tensor over them in place; None for a single process."""

    def share(self, count: int) -> slice: ...

    def whole(self, part: Tensor, count: int) -> Tensor: ...


@dataclass(frozen=True)
class Federation:
    """What an algorithm may know about the experiment before the first round."""

    ranks: "Processes"
    layout: Layout
    num_workers: int
    cohort_size: int
    num_blocks: int
    seed: int
    device: torch.device
    dtype: torch.dtype
    norms: frozenset[str] = frozenset()  # names of the parameters of normalisation layers


class Start(Enum):
    """The value of a worker's state before its first round: zeros, or a vector of the server's model."""

    ZEROS = "zeros"  # like the parameters
    GLOBAL_PARAMS = "global_params"  # x_t
    GLOBAL_BUFFERS = "global_buffers"  # running statistics of x_t
    INITIAL_PARAMS = "initial_params"  # x_0
    INITIAL_BUFFERS = "initial_buffers"

    @property
    def is_buffers(self) -> bool:
        """Whether the state has the length of the running statistics; otherwise that of the parameters."""
        return self in (Start.GLOBAL_BUFFERS, Start.INITIAL_BUFFERS)


@dataclass(frozen=True)
class LocalStart:
    """A stack of workers before a round: the global model, and what each of them has kept."""

    workers: np.ndarray
    global_params: Vector  # x_t
    global_buffers: Vector
    buffers: Stack | Vector  # running statistics to start from: the global ones, or with buffers=local its own for each
    state: Mapping[str, Stack]


@dataclass(frozen=True)
class LocalSurvey:
    """A stack of workers at x_t, before any of them takes a step."""

    global_params: Vector
    state: Mapping[str, Stack]
    full_gradient: Callable[[Vector], Stack]
    """Gradient over each worker's whole data at one point, in batches."""
    round_gradient: Callable[[Vector], Stack]
    """Mean gradient over the batches of this round at one point."""


@dataclass(frozen=True)
class LocalBatch:
    """One mini-batch of every worker of the stack, and the networks an objective may run on it.

    weights (S, B) holds mask / count for padded batches and is None when every row is real.
    """

    labels: Tensor  # (S, B)
    logits: Tensor  # (S, B, K)
    features: Tensor | None  # (S, B, F)
    activations: Sequence[Tensor]  # after each block, (S, B, ...)
    weights: Tensor | None
    state: Mapping[str, Stack]
    global_params: Vector
    global_buffers: Vector
    count_classes: Callable[[int], Tensor]
    frozen_logits: Callable[[], Tensor]
    frozen_features: Callable[[Stack | Vector, Stack | Vector], Tensor]
    """(params, buffers) -> (S, B, F) features of this batch by the network with those values, in evaluation mode and
    without gradient."""
    run_blocks: Callable[[int, Tensor, Vector, bool], Tensor]
    """(first, x, params, train) -> logits: x (S, B, ...) through the blocks from number ``first`` on, with the values
    ``params`` and the global model's running statistics, which are not updated; differentiable in x. ``train`` means
    batch statistics and dropout."""

    @cached_property
    def class_counts(self) -> Tensor:
        """(S, K): how many samples of each class every worker has to train on."""
        return self.count_classes(self.logits.shape[-1])

    @cached_property
    def global_logits(self) -> Tensor:
        """(S, B, K): logits of x_t on this batch, in evaluation mode and without gradient; computed once per step."""
        return self.frozen_logits()

    def mean(self, values: Tensor) -> Tensor:
        """(S, B) -> (S,), padding left out."""
        return values.mean(1) if self.weights is None else (values * self.weights).sum(1)

    def cross_entropy(self, logits: Tensor) -> Tensor:
        """(S, B, K) -> (S,)."""
        flat, labels = logits.flatten(0, 1), self.labels.flatten()
        if self.weights is None and len(logits) == 1:
            return F.cross_entropy(flat, labels).view(1)
        return self.mean(F.cross_entropy(flat, labels, reduction="none").view(self.labels.shape))


@dataclass(frozen=True)
class LocalStep:
    """Step tau of the stack: everything a descent direction may depend on.

    Its rows are the workers that take the step; those with fewer steps are no longer among them.
    """

    index: int
    params: Stack
    previous_params: Stack  # x_{tau-1}; at tau = 0 what the worker starts from, x_t
    global_params: Vector
    gradient: Stack
    local_lr: float  # of this round
    relative_sizes: Vector  # n_i / mean n, of the workers of the stack
    state: Mapping[str, Stack]
    gradient_at: Callable[[Stack | Vector], Stack]
    """Gradient of the local objective elsewhere, on the same batch with dropout of its own; statistics discarded."""
    record: Callable[..., None]
    """record(name, values, how="mean" | "max" | "sum"): logged once per round, over steps and workers."""
    remembered: dict[str, Stack]
    """What the workers of the stack have noted in this round, a row for each of them, also those without this step."""

    def recall(self, name: str, initial: Stack) -> Stack:
        """What the workers noted under this name at their last step; ``initial`` at the first."""
        noted = self.remembered.get(name)
        return initial if noted is None else noted[: len(self.params)]

    def remember(self, name: str, stack: Stack) -> None:
        """Note something for the next step and for ``finish_local``; it is forgotten after the round."""
        noted = self.remembered.get(name)
        rest = [] if noted is None or len(noted) == len(stack) else [noted[len(stack) :]]
        self.remembered[name] = torch.cat([stack, *rest]) if rest else stack


@dataclass(frozen=True)
class ProjectedDescent:
    """What ``local_direction`` and ``finish_local`` are to an engine that has a kernel for them.

    Steps along projected gradients, x_{tau+1} = x_tau - local_lr QP(g(x_tau); [g(x_{tau-1}), g(x_t), x_tau - x_t]), as
    GradMA takes them, after which a worker keeps its last model or nothing.
    """

    previous: str | None  # the state that holds x_{-1} and takes the last model; None: the first step is plain
    segments: Segments | None
    margin: float
    record: Callable[[Callable[..., None], Solution], None]
    """Records what the projections of some workers found."""


@dataclass(frozen=True)
class LocalRun:
    """A finished stack: what workers may keep or send besides their update."""

    params: Stack
    buffers: Stack
    delta: Stack  # x_t - x_I
    global_params: Vector
    state: Mapping[str, Stack]
    local_lr: float  # of this round
    step_counts: np.ndarray
    local_momentum: float
    full_gradient: Callable[[Vector], Stack]
    """Gradient over each worker's whole data at one point, in batches."""
    remembered: Mapping[str, Stack]
    """What ``LocalStep.remember`` noted."""
    round_gradient: Callable[[Vector], Stack]
    """Mean gradient over the batches of this round at one point."""

    @cached_property
    def local_steps(self) -> Vector:
        """(S,): the number of steps that each worker took."""
        return per_worker(self.step_counts, self.delta)

    @cached_property
    def mean_direction(self) -> Stack:
        """(x_t - x_I) / (local_lr a_i), the mean of each worker's directions: a_i is its number of steps.

        With momentum it is a weighted mean, and a_i are its ``effective_steps``.
        """
        path = effective_steps(self.step_counts, self.local_momentum) * self.local_lr
        return self.delta / per_worker(path, self.delta)[:, None]


@dataclass(frozen=True)
class Updates:
    """What the server receives: ``delta = x_t - x_i`` points downhill, the server subtracts it."""

    round: int
    workers: np.ndarray
    delta: Stack
    weights: Vector  # over this cohort, sums to 1
    population_weights: Vector  # each worker's share of all N; zero outside the cohort is implied
    sent: Mapping[str, Stack]
    global_params: Vector
    step_counts: np.ndarray
    local_lr: float  # of this round
    local_momentum: float

    @cached_property
    def local_steps(self) -> Vector:
        """(S,): the number of steps that each worker took."""
        return per_worker(self.step_counts, self.delta)

    @cached_property
    def effective_steps(self) -> Vector:
        """(S,): what the weights of each worker's directions in its update add up to, in units of ``local_lr``.

        This is |a_i|_1 of Wang et al. (FedNova): the number of steps, and with momentum
        sum_{k=1..steps} (1 - momentum^k) / (1 - momentum).
        """
        return per_worker(effective_steps(self.step_counts, self.local_momentum), self.delta)

    @cached_property
    def mean_delta(self) -> Vector:
        """avg_S(x_t - x_i)."""
        return self.average(self.delta)

    def average(self, stack: Stack) -> Vector:
        """avg_S: the cohort's weighted mean."""
        return self.weights @ stack

    def pooled(self, mean: Vector) -> "Updates":
        """These updates as a single one, for a server that may see no more of them than ``mean``.

        It has the share of all of them in the population, their mean number of steps, and no worker's name.
        """
        return replace(
            self,
            workers=np.full(1, -1, np.int64),
            delta=mean.unsqueeze(0),
            weights=mean.new_ones(1),
            population_weights=self.population_weights.sum(0, keepdim=True),
            sent={},
            step_counts=self.step_counts.mean(keepdims=True) if len(self.step_counts) else np.ones(1),
        )

    def population_sum(self, stack: Stack) -> Vector:
        """Sum of q_i v_i over the cohort: how an average over all N workers changes."""
        return self.population_weights @ stack


def effective_steps(steps: np.ndarray, momentum: float) -> np.ndarray:
    """What the weights of the directions of so many steps with momentum add up to."""
    if momentum == 0:
        return steps
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def per_worker(values: np.ndarray, like: Tensor) -> Vector:
    """Numbers of the host as a vector of the type and on the device of ``like``; equal ones take no copy."""
    if len(values) and (values == values[0]).all():
        return like.new_full((len(values),), values[0].item())
    return torch.from_numpy(values).to(like)
