"""The contract of an algorithm: a Lightning callback that says only where it differs from FedAvg.

Everything a worker hook sees is stacked over the cohort: ``params`` is (S, d), ``global_params`` (d,), so one
line reads like the paper's equation and runs for all workers at once. Constructor fields are hyper-parameters
(command line, W&B config); fields made by ``state()`` are state (checkpoint). Server hooks may write ``self``;
worker hooks may not, so workers can run in any order and on any rank.

Tensors that a hook is given are never written over afterwards: an algorithm may keep them without copying.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import lightning as L
import numpy as np
import torch
from torch import Tensor, nn

from fl_platform.algorithms.inputs import (
    Federation,
    LocalBatch,
    LocalRun,
    LocalStart,
    LocalStep,
    LocalSurvey,
    ProjectedDescent,
    Start,
    Updates,
)
from fl_platform.config.registry import ALGORITHMS
from fl_platform.config.rules import Rules
from fl_platform.errors import UserError, unknown_name
from fl_platform.models.flat import Stack, Vector
from fl_platform.paper.methods import FURTHER_GROUPS, PAPER, Group

__all__ = [
    "Algorithm",
    "Federation",
    "LocalBatch",
    "LocalRun",
    "LocalStart",
    "LocalStep",
    "LocalSurvey",
    "ProjectedDescent",
    "Start",
    "Updates",
    "get",
    "has_default",
    "names",
    "state",
    "the_algorithm",
    "zeros",
]


def zeros(federation: Federation, dtype: torch.dtype | None = None) -> Vector:
    """Zeros like the parameter vector, or of another type."""
    return torch.zeros(federation.layout.dim, dtype=dtype or federation.dtype, device=federation.device)


def state(initial: Callable[[Federation], Any] = lambda _: None) -> Any:
    """A field that is not a hyper-parameter: written by server hooks, saved in checkpoints.

    Before the first round it is ``initial(federation)``, for example ``state(zeros)``; ``prepare`` may replace that.
    """
    if not callable(initial):
        raise TypeError(
            f"state({initial!r}): what a state begins with is given as a function of the federation, as state(zeros) "
            f"or state(lambda federation: {initial!r})"
        )
    return field(init=False, default=None, repr=False, metadata={"initial": initial})


class FixedClass:
    """Objects that stay of the class they were made of: a run's record names the method that computes it."""

    @property
    def __class__(self) -> type[Self]:
        return type(self)

    @__class__.setter
    def __class__(self, kind: type[Self]) -> None:
        raise TypeError(f"an algorithm cannot change its class, here from {type(self).__name__} to {kind.__name__}")


@dataclass(eq=False)
class Algorithm(FixedClass, Rules, L.Callback):
    """FedAvg's rules, each open to be replaced. A subclass with ``name=...`` is registered under it."""

    name: ClassVar[str]
    label: ClassVar[str]  # as printed in tables
    kind: ClassVar[str] = "worker"
    """baseline | worker | server | both: where it departs from FedAvg; a class of several joins theirs."""
    group: ClassVar[str] = PAPER
    """Where lists, tables and figures show it: one of ``paper.methods.FURTHER_GROUPS``; outside the package "plugin"
    unless the class itself declares another."""
    equation: ClassVar[str] = ""  # where it departs from FedAvg, in one line
    gradients: ClassVar[int] = 1  # taken by a worker per local step
    downloads: ClassVar[int] = 1  # vectors of d numbers sent to each worker per round
    uploads: ClassVar[int] = 1
    pools_data: ClassVar[bool] = False
    """Whether one worker has the data of all and takes the steps of the whole cohort."""
    is_scored_by_workers: ClassVar[bool] = False
    """Whether test metrics are means over the workers' models (``worker_model``) instead of the server's."""
    sends: ClassVar[tuple[str, ...]] = ()
    """Names of ``finish_local`` that go to the server."""

    needs: ClassVar[tuple[str, ...]] = ()
    """Keys of the configuration and the values that this method works with, such as ``model.norm=group|none``."""
    steps_alone: ClassVar[bool] = False
    """Whether the server also steps in a round to which nobody reports: ``server_direction`` has no updates then."""

    @property
    def keeps(self) -> dict[str, Start]:
        """Per-worker state: name -> the value of a worker never seen."""
        return {}

    @property
    def private(self) -> Tensor | None:
        """(d,) of bool: the numbers of the model that never leave a worker; None where all do.

        In what arrives at the server they are zero, and they are not counted as sent.
        """
        return None

    @property
    def num_private(self) -> int:
        """How many these are, known without reading the device."""
        return 0

    def __init_subclass__(cls, name: str | None = None, label: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is None:
            return
        if "group" not in vars(cls) and cls.__module__.partition(".")[0] != __name__.partition(".")[0]:
            cls.group = Group.PLUGIN
        if cls.group not in (PAPER, *FURTHER_GROUPS):
            raise unknown_name(f"the group of algorithm {name}", cls.group, FURTHER_GROUPS)
        if "kind" not in vars(cls):
            cls.kind = _kind_of([one.kind for one in cls.__bases__ if issubclass(one, Algorithm)])
        ALGORITHMS.add(name, cls, cls)
        cls.name, cls.label = name, label or name

    def adapt_network(self, network: nn.Module, example: Tensor, num_classes: int) -> None:
        """Change the freshly initialised network in place; ``example`` is two of its inputs, zeros.

        Random numbers come from its seed.

        Raises ValueError("cannot be ...") where that is impossible; the model's name is put in front of it.
        """

    def prepare(self, federation: Federation) -> None:
        """Server, before the first round: allocate what ``state(initial)`` cannot, look at the federation."""

    def begin_round(self, workers: np.ndarray, round: int) -> None:
        """Server, before training: the workers that will report, in sampling order."""

    def survey_local(self, survey: LocalSurvey) -> Stack:
        """Workers, in a first exchange of the round, before any of them trains: a vector of d numbers at x_t.

        A method that has one counts it among its ``uploads``, and what it then sends to all among its ``downloads``.
        """
        raise NotImplementedError  # FedAvg has no such exchange, and this is not called

    def receive_survey(self, mean: Vector) -> None:
        """Server, after the first exchange: the cohort's weighted mean of what ``survey_local`` returned."""

    def start_local(self, start: LocalStart) -> tuple[Stack | Vector, Stack | Vector]:
        """Workers, before their first step: parameters and running statistics to start from, for each or for all."""
        return start.global_params, start.buffers

    def local_loss(self, batch: LocalBatch) -> Tensor:
        """Workers: the objective of each worker on its batch, (S,)."""
        return batch.cross_entropy(batch.logits)

    def local_direction(self, step: LocalStep) -> Stack:
        """Workers: x_{tau+1} = x_tau - local_lr * direction.

        ``local_clip``, ``local_weight_decay`` and ``local_momentum`` act on what is returned, as they would on the
        gradient of a loss that contains the method's corrections.
        """
        return step.gradient

    def projected_descent(self) -> ProjectedDescent | None:
        """The rule behind ``local_direction``, which is then not called where an engine has a kernel for the rule.

        None, unless it is a rule that kernels are written for.
        """
        return None

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        """Workers, after their last step: values for every name in ``keeps`` and ``sends``."""
        return {}

    def receive_updates(self, updates: Updates) -> Updates:
        """Server: what it sees of the updates. ``server_direction`` is given what this returns, and nothing else."""
        return updates

    def server_direction(self, updates: Updates) -> Vector:
        """Server: x_{t+1} = x_t - server_lr * direction."""
        return updates.mean_delta

    def evaluated_params(self, global_params: Vector) -> Vector:
        """The model whose accuracy counts: the server's."""
        return global_params

    def also_evaluated(self, global_params: Vector) -> dict[str, Vector]:
        """Models scored beside it at every evaluation: name -> parameters, logged under ``metrics.score_of``."""
        return {}

    def worker_model(self, start: LocalStart) -> tuple[Stack | Vector, Stack | Vector]:
        """The model that each worker uses, scored by ``evaluation.workers``: what it would start its next round from.

        Parameters and running statistics, for each worker or for all.
        """
        return self.start_local(start)

    def diagnostics(self) -> dict[str, float]:
        """Figures of the last server step, logged with the round."""
        return {}

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        # Lightning restores a checkpoint after setup: state must be allocated here or resuming would wipe it
        if stage != "fit":
            return  # what is scored is what was trained
        self.start(pl_module.federation(trainer.strategy.root_device))  # type: ignore[operator]

    def start(self, federation: Federation) -> None:
        """Give every state field its initial value, then ``prepare``."""
        for f in dataclasses.fields(self):
            if not f.init:
                setattr(self, f.name, f.metadata["initial"](federation))
        self.prepare(federation)

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


_DEFAULT_HOOKS = {
    hook: vars(Algorithm)[hook]
    for hook in (
        *("local_loss", "local_direction", "evaluated_params", "start_local"),
        *("survey_local", "worker_model", "begin_round", "finish_local"),
    )
}


def _kind_of(kinds: list[str]) -> str:
    """Where a method departs from FedAvg whose base classes depart there."""
    departing = {kind for kind in kinds if kind != "baseline"} or {"baseline"}
    return departing.pop() if len(departing) == 1 else "both"


def has_default(algorithm: Algorithm, *hooks: str) -> bool:
    """Whether calling these hooks of the algorithm runs FedAvg's own code, so that a kernel may stand in for them.

    The attribute that a call would find decides: overriding in a subclass or mix-in, on the instance, by patching the
    class or through ``__getattr__`` all count as replaced.
    """
    return all(getattr(getattr(algorithm, hook), "__func__", None) is _DEFAULT_HOOKS[hook] for hook in hooks)


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
