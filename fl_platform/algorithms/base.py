"""The contract of an algorithm: a Lightning callback that says only where it differs from FedAvg.

Everything a worker hook sees is stacked over the cohort: ``params`` is (S, d), ``global_params`` (d,), so one
line reads like the paper's equation and runs for all workers at once. Constructor fields are hyper-parameters
(command line, W&B config); fields made by ``state()`` are state (checkpoint). Server hooks may write ``self``;
worker hooks may not, so workers can run in any order and on any rank.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_platform.config.registry import ALGORITHMS
from fl_platform.config.schema import Config
from fl_platform.errors import UserError
from fl_platform.models.flat import Layout, Stack, Vector


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
    frozen_features: Callable[[Stack | Vector, Stack | Vector], Tensor]
    """(params, buffers) -> (S, B, F) of that network in evaluation mode, without gradient."""
    resume_at: Callable[[int, Tensor, Vector, bool], Tensor]
    """(block, activation, params, train) -> logits of the blocks from there on; no running statistics are updated."""

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
    """Step tau of the stack: everything a descent direction may depend on."""

    index: int
    params: Stack
    previous_params: Stack  # x_{tau-1}; x_t itself at tau = 0
    global_params: Vector
    gradient: Stack
    relative_sizes: Vector  # n_i / mean n, of the workers of the stack
    state: Mapping[str, Stack]
    gradient_at: Callable[[Stack | Vector], Stack]
    """Gradient of the local objective elsewhere, on the same batch with dropout of its own; statistics discarded."""
    record: Callable[..., None]
    """record(name, values, how="mean" | "max" | "sum"): logged once a round, over steps and workers."""


@dataclass(frozen=True)
class LocalRun:
    """A finished stack: what workers may keep or send besides their update."""

    params: Stack
    buffers: Stack
    delta: Stack  # x_t - x_I
    global_params: Vector
    state: Mapping[str, Stack]
    local_lr: float
    local_steps: int
    full_gradient: Callable[[Vector], Stack]
    """Gradient over each worker's whole data at one point, in batches."""
    round_gradient: Callable[[Vector], Stack]
    """Mean gradient over the batches of this round at one point."""


@dataclass(frozen=True)
class Updates:
    """What the server receives: ``delta = x_t - x_i`` points downhill, the module subtracts it.

    ``delta`` and ``sent`` are written over in the next round: copy what is to be kept.
    """

    round: int
    workers: np.ndarray
    delta: Stack
    weights: Vector  # over this cohort, sums to 1
    population_weights: Vector  # each worker's share of all N; zero outside the cohort is implied
    sent: Mapping[str, Stack]
    global_params: Vector

    @cached_property
    def mean_delta(self) -> Vector:
        """avg_S(x_t - x_i)."""
        return self.average(self.delta)

    def average(self, stack: Stack) -> Vector:
        """avg_S: the cohort's weighted mean."""
        return self.weights @ stack

    def population_sum(self, stack: Stack) -> Vector:
        """Sum of q_i v_i over the cohort: how an average over all N workers changes."""
        return self.population_weights @ stack


def state() -> Any:
    """A field that is not a hyper-parameter: allocated in ``prepare``, written by server hooks, saved."""
    return field(init=False, default=None, repr=False)


@dataclass(eq=False)
class Algorithm(L.Callback):
    """FedAvg's rules, each open to be replaced. A subclass with ``name=...`` is registered under it."""

    name: ClassVar[str]
    label: ClassVar[str]  # as printed in tables
    kind: ClassVar[str] = "worker"  # baseline | worker | server | both: where it departs from FedAvg
    downloads: ClassVar[int] = 1  # vectors of d numbers sent to each worker a round
    uploads: ClassVar[int] = 1
    sends: ClassVar[tuple[str, ...]] = ()
    """Names of ``finish_local`` that go to the server."""

    @property
    def keeps(self) -> dict[str, str]:
        """Per-worker state: name -> what a worker never seen has: zeros, or global_ | initial_ params | buffers."""
        return {}

    @property
    def wants(self) -> dict[str, Any]:
        """What the method asks of its network: keyword arguments of ``models.build``, such as projection_width."""
        return {}

    def __init_subclass__(cls, name: str | None = None, label: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is None:
            return
        ALGORITHMS.add(name, cls)
        cls.name, cls.label = name, label or name

    @classmethod
    def check(cls, config: Config) -> None:
        """Raise UserError for hyper-parameters (``config.algorithm``) that do not fit the rest of the configuration."""

    def prepare(self, federation: Federation) -> None:
        """Allocate server state."""

    def begin_round(self, workers: np.ndarray, round: int) -> None:
        """Server, before training: the workers that will report, in sampling order."""

    def local_loss(self, batch: LocalBatch) -> Tensor:
        """Workers: the objective of each worker on its batch, (S,)."""
        return batch.cross_entropy(batch.logits)

    @property
    def has_plain_loss(self) -> bool:
        """Whether workers minimise the cross-entropy itself, whose gradient some networks can write out."""
        return type(self).local_loss is Algorithm.local_loss

    @property
    def has_plain_steps(self) -> bool:
        """Whether workers follow the gradient of that loss, so that nothing need happen between two steps."""
        return self.has_plain_loss and type(self).local_direction is Algorithm.local_direction

    def local_direction(self, step: LocalStep) -> Stack:
        """Workers: x_{tau+1} = x_tau - local_lr * direction."""
        return step.gradient

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        """Workers, after their last step: values for every name in ``keeps`` and ``sends``."""
        return {}

    def server_direction(self, updates: Updates) -> Vector:
        """Server: x_{t+1} = x_t - server_lr * direction."""
        return updates.mean_delta

    def evaluated_params(self, global_params: Vector) -> Vector:
        """The model whose accuracy counts: the server's."""
        return global_params

    def also_evaluated(self, global_params: Vector) -> dict[str, Vector]:
        """Models scored beside it at every evaluation: name -> parameters, logged under ``metrics.score_of``."""
        return {}

    def diagnostics(self) -> dict[str, float]:
        """Figures of the last server step, logged with the round."""
        return {}

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        # Lightning restores a checkpoint after setup: state must be allocated here or resuming would wipe it
        self.prepare(pl_module.federation(trainer.strategy.root_device))  # type: ignore[operator]

    @property
    def state_key(self) -> str:
        return f"algorithm:{self.name}"

    def state_dict(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if not f.init}
        return {name: value.state_dict() if hasattr(value, "state_dict") else value for name, value in values.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, saved in state_dict.items():
            current = getattr(self, name)
            if hasattr(current, "load_state_dict"):
                current.load_state_dict(saved)
            else:
                setattr(self, name, saved.to(current.device) if isinstance(current, Tensor) else saved)


def names() -> list[str]:
    """Return the names of all registered algorithms."""
    return ALGORITHMS.names()


def get(name: str) -> type[Algorithm]:
    """Return the algorithm of this name; UserError where none is registered."""
    kind: type[Algorithm] = ALGORITHMS.get(name)
    return kind


def the_algorithm(trainer: L.Trainer) -> Algorithm:
    """The one algorithm among the Trainer's callbacks."""
    found = [callback for callback in trainer.callbacks if isinstance(callback, Algorithm)]  # type: ignore[attr-defined]
    if len(found) != 1:
        listed = ", ".join(algorithm.name for algorithm in found) or "none"
        raise UserError(
            f"the Trainer needs exactly one algorithm among its callbacks, found {listed}; "
            "pass for example Trainer(callbacks=[FedAvg()])"
        )
    return found[0]
