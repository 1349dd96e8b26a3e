"""The local work of a stack of workers: what it starts from, the batches of its steps, and what it ends with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_platform.data.streams import BatchPlan
from fl_platform.engines.records import Records
from fl_platform.kernels.recycled import Recycler
from fl_platform.models.flat import Stack, Vector


@dataclass(frozen=True)
class LocalWork:
    """What a stack of workers starts a round from; those with more steps come first."""

    round: int
    workers: np.ndarray
    plan: BatchPlan
    local_lr: float
    global_params: Vector
    global_buffers: Vector
    buffers: Stack | Vector  # what each worker's running statistics start from
    relative_sizes: Vector  # n_i / mean n
    state: Mapping[str, Stack]
    gradient_passes: NDArray[np.int64]  # (S,): gradients that each worker has taken, counted while it trains

    def part(self, rows: slice) -> "LocalWork":
        """The work of some of the workers, without steps that none of them takes."""
        return replace(
            self,
            workers=self.workers[rows],
            plan=self.plan.part(rows),
            buffers=self.buffers[rows] if self.buffers.dim() == 2 else self.buffers,
            relative_sizes=self.relative_sizes[rows],
            state=part_of(self.state, rows),
            gradient_passes=self.gradient_passes[rows],
        )


def part_of(stacks: Mapping[str, Stack], rows: slice) -> dict[str, Stack]:
    """Some rows of every stack."""
    return {name: stack[rows] for name, stack in stacks.items()}


class LoadedPlan:
    """A batch plan on a device, with the keys of its dropout and augmentation and what padding leaves of a mean."""

    def __init__(self, plan: BatchPlan, indices: Tensor, counts: Tensor, keys: Callable[[], Tensor]) -> None:
        self.plan = plan
        self.indices, self.counts = indices, counts  # (steps, S, B) and (steps, S)
        self.widths: list[int] = plan.counts.max(axis=1).tolist()  # each step is padded to its longest batch
        self.is_even = bool((plan.steps == len(plan.counts)).all())  # whether all workers take all steps
        self._make_keys = keys

    @staticmethod
    def on_host(plan: BatchPlan, draw_keys: Callable[[], NDArray[np.int64]]) -> "LoadedPlan":
        """The plan on the CPU, sharing its memory."""
        indices, counts = torch.from_numpy(plan.indices), torch.from_numpy(plan.counts)
        return LoadedPlan(plan, indices, counts, lambda: torch.from_numpy(draw_keys()))

    @cached_property
    def active(self) -> list[int]:
        """How many workers take each step: the first ones."""
        return [len(self.plan.steps)] * len(self.widths) if self.is_even else self.plan.active.tolist()

    @cached_property
    def is_padded(self) -> list[bool]:
        """Of each step, whether batches of workers that take it differ in length."""
        takes_step = np.arange(len(self.plan.steps)) < np.array(self.active)[:, None]
        shortest = np.where(takes_step, self.plan.counts, self.plan.counts.max()).min(axis=1)
        return [least < most for least, most in zip(shortest.tolist(), self.widths, strict=True)]

    @cached_property
    def keys(self) -> Tensor:
        """(steps, S); a perceptron without dropout never asks for them."""
        return self._make_keys()

    @cached_property
    def mask(self) -> Tensor:
        """(steps, S, B), False for padding."""
        return torch.arange(self.indices.shape[2], device=self.counts.device) < self.counts.unsqueeze(-1)

    def row_weights(self, dtype: torch.dtype) -> Tensor:
        """(steps, S, B): the weights of rows in a mean over a batch's real ones; zero for padding."""
        if self._row_weights is None:
            self._row_weights = self.mask.to(dtype) / self.counts.clamp(min=1).unsqueeze(-1)
        return self._row_weights

    _row_weights: Tensor | None = None


@dataclass
class LocalResult:
    """What the workers of a round end with, a row each."""

    workers: np.ndarray
    delta: Stack  # x_t - x_i
    buffers: Stack
    loss: Tensor  # (S,), mean over the local steps
    outcome: dict[str, Stack]  # for every name the algorithm keeps or sends
    local_steps: NDArray[np.int64]
    gradient_passes: NDArray[np.int64]
    records: Records = field(default_factory=Records)

    @staticmethod
    def empty(work: LocalWork, widths: Mapping[str, int], memory: Recycler) -> "LocalResult":
        """Stacks to be filled in; ``widths`` are the lengths of what a worker keeps and sends, by name."""
        like, count = work.global_params, len(work.workers)
        return LocalResult(
            workers=work.workers,
            local_steps=work.plan.steps,
            delta=memory.empty("delta", (count, like.numel()), like),
            buffers=like.new_empty(count, work.global_buffers.numel()),
            loss=like.new_empty(count),
            outcome={name: memory.empty(f"outcome.{name}", (count, width), like) for name, width in widths.items()},
            gradient_passes=work.gradient_passes,
        )

    @property
    def stacks(self) -> list[Tensor]:
        return [self.delta, self.buffers, self.loss, *self.outcome.values()]

    def only(self, rows: np.ndarray) -> "LocalResult":
        """The result of some of the workers."""
        index = torch.from_numpy(rows).to(self.delta.device)
        return replace(
            self,
            workers=self.workers[rows],
            local_steps=self.local_steps[rows],
            delta=self.delta[index],
            buffers=self.buffers[index],
            loss=self.loss[index],
            outcome={name: stack[index] for name, stack in self.outcome.items()},
            gradient_passes=self.gradient_passes[rows],
        )
