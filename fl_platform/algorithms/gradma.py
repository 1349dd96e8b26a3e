"""GradMA: Luo et al., A Gradient-Memory-based Accelerated Federated Learning with Alleviated Catastrophic Forgetting,
CVPR 2023.

https://arxiv.org/abs/2302.14307

QP(p; A) is the Euclidean projection of p onto {v : <v, a> >= 0 for every anchor a in A}.

GradMA-W, worker i at step tau, all gradients on the same mini-batch:
    g~ = QP(g(x_tau); [g(x_{tau-1}), g(x_t), x_tau - x_t]),   x_{tau+1} = x_tau - local_lr g~.
GradMA-S, server, with a memory D of accumulated updates:
    m_{t+1} = momentum_decay m~_t + avg_S(d_i),   m~_{t+1} = QP(m_{t+1}; D),   x_{t+1} = x_t - server_lr m~_{t+1}.
GradMA is both.

Readings and departures:
- x_{-1} is the worker's last local model (``previous_model=last_local``; x_t for a worker never seen), or x_t as in the
  released joint algorithm (``previous_model=global``): its first step is then plain SGD.
- Mini-batch gradients stand for the full local gradients of the paper's listing, as in the released code.
- Passes that cannot differ are not repeated: at tau = 0 the model is x_t, at tau = 1 the previous model is x_t. With
  dropout the released code draws another mask for each such pass.
- The memory keeps unweighted updates, whatever ``aggregation`` says.
- ``memory_size=0`` is FedAvgM on the server; the released code fails there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from fl_platform import qp
from fl_platform.algorithms.base import (
    Algorithm,
    Federation,
    LocalRun,
    LocalStep,
    ProjectedDescent,
    Start,
    Updates,
    state,
)
from fl_platform.algorithms.memory import GradientMemory
from fl_platform.algorithms.memory_rules import MemoryRules, default_memory_size
from fl_platform.algorithms.momentum import SlowMomentum
from fl_platform.config.options import group, option
from fl_platform.kernels.many_anchors import compiled_active_set
from fl_platform.kernels.worker_projection import compile_projection, project_stack
from fl_platform.models.flat import Stack, Vector
from fl_platform.runs import metrics

FROZEN = 1e-6  # a tensor keeps less than this share of its length: no direction agrees with all anchors


@dataclass(frozen=True)
class QPOptions:
    """How both sides project."""

    solver: str = option("exact", "projection solver", choices=("exact", "cvxpylayers", "clarabel"))
    scope: str = option(
        "global",
        "one projection of the whole vector, or one per named tensor",
        choices=("global", "tensor"),
        presets={"released": "tensor"},
    )
    log_errors: bool = option(
        False,
        "log how long the projected vectors are and how far they are moved, |p| and |p - p~|",
        identity="changed",
    )


@dataclass(frozen=True)
class WorkerQPOptions(QPOptions):
    """Options of the projection on workers."""

    worker_margin: float = option(0.0, "rho_l: anchors are met with <v, a> >= rho |p| |a|", at_least=0, below=1)


@dataclass(frozen=True)
class ServerQPOptions(QPOptions):
    """Options of the projection on the server."""

    server_margin: float = option(0.0, "rho_g: anchors are met with <v, a> >= rho |p| |a|", at_least=0, below=1)
    drop_threshold: float = option(
        0.0,
        "delta: server anchors shorter than this share of the longest are dropped; 0 is the paper",
        at_least=0,
        below=1,
    )


@dataclass(frozen=True)
class JointQPOptions(ServerQPOptions, WorkerQPOptions):
    """Options of both projections."""


def previous_model_option(released: str) -> Any:
    """Declare x_{-1}, which the released code takes differently alone and in the joint algorithm."""
    return option(
        "last_local",
        "x_{-1}: the worker's last local model, or x_t",
        choices=("last_local", "global"),
        presets={"released": released},
    )


@dataclass(eq=False)
class ProjectedWorker(Algorithm):
    """The worker side: descend along the gradient that opposes neither the past, the global model, nor the drift."""

    gradients: ClassVar[int] = 3
    equation: ClassVar[str] = r"x_\tau - \eta_l\, \mathrm{QP}(g; [g(x_{\tau-1}), g(x_t), x_\tau - x_t])"

    previous_model: str = previous_model_option(released="last_local")
    qp: WorkerQPOptions = group(WorkerQPOptions, "projection")

    @property
    def keeps(self) -> dict[str, Start]:
        return {"last_local": Start.GLOBAL_PARAMS} if self.previous_model == "last_local" else {}

    def prepare(self, federation: Federation) -> None:
        super().prepare(federation)
        self._segments = federation.layout.segments if self.qp.scope == "tensor" else None
        if self.qp.solver == "exact":
            compile_projection(federation.device, federation.dtype)

    def local_direction(self, step: LocalStep) -> Stack:
        anchors = self.anchors(step)
        if not anchors:
            return step.gradient
        if self.qp.solver == "exact":
            found = project_stack([step.gradient, *anchors], segments=self._segments, margin=self.qp.worker_margin)
        else:
            found = qp.project(
                step.gradient,
                torch.stack(anchors, dim=1),
                segments=self._segments,
                margin=self.qp.worker_margin,
                solver=self.qp.solver,
            )
        record_solution(step.record, found)
        if self.qp.log_errors:
            step.record(metrics.QP_WORKER_LENGTH, step.gradient.norm(dim=1), how="max")
            step.record(metrics.QP_WORKER_ERROR, (step.gradient - found.vectors).norm(dim=1), how="max")
        return found.vectors

    def anchors(self, step: LocalStep) -> list[Stack]:
        """g(x_{tau-1}), g(x_t) and the drift, without those that coincide or vanish."""
        if step.index == 0:
            if self.previous_model == "global":
                return []
            return [step.gradient_at(step.state["last_local"]), step.gradient]
        drift = step.params - step.global_params
        at_global = step.gradient_at(step.global_params)
        if step.index == 1:
            return [at_global, drift]
        return [step.gradient_at(step.previous_params), at_global, drift]

    def projected_descent(self) -> ProjectedDescent | None:
        is_own = all(getattr(getattr(self, hook), "__func__", None) is _RULE[hook] for hook in _RULE)
        if not is_own or self.qp.solver != "exact" or self.qp.log_errors:
            return None
        previous = "last_local" if self.previous_model == "last_local" else None
        segments = getattr(self, "_segments", None)  # which are not known before ``prepare``
        return ProjectedDescent(previous, segments, self.qp.worker_margin, record_solution)

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        return {"last_local": run.params} if self.keeps else {}


_RULE = {hook: vars(ProjectedWorker)[hook] for hook in ("local_direction", "anchors", "finish_local")}


def record_solution(record: Callable[..., None], found: qp.Solution) -> None:
    """Log what projections found."""
    record(metrics.QP_WORKER_ACTIVE, found.active)
    record(metrics.QP_WORKER_RATIO, found.norm_ratio)
    record(metrics.QP_WORKER_RESIDUAL, found.residual, how="max")


@dataclass(eq=False)
class ProjectedServer(MemoryRules, SlowMomentum):
    """The server side: momentum that opposes no remembered update; the projected momentum is what is fed back."""

    equation: ClassVar[str] = r"m \leftarrow \mathrm{QP}(\beta_1 m + d; D),\; x_{t+1} = x_t - \eta_g m"

    memory_decay: float = option(0.5, "beta_2", at_least=0, below=1, grid=(0.1, 0.5, 0.9))
    memory_size: int | None = option(
        None, "m: slots of the gradient memory; 0 is FedAvgM; null: 100, or N if that is less", at_least=0
    )
    memory_policy: str = option("least_frequent", "which slot is overwritten; see `list policies`")
    memory_device: str | None = option(
        None, "where the gradient memory lives; null: the training device", is_device=True, identity=False
    )
    memory_shard: bool = option(False, "with several ranks, each keeps its share of the coordinates", identity=False)
    qp: ServerQPOptions = group(ServerQPOptions, "projection")
    memory: GradientMemory | None = state()

    def prepare(self, federation: Federation) -> None:
        super().prepare(federation)
        self._diagnostics: dict[str, float] = {}
        self._ranks, dim = federation.ranks, federation.layout.dim
        self._share = self._ranks.share(dim) if self.memory_shard else slice(0, dim)
        self._is_shared = self.memory_shard and self._ranks.size > 1
        size = default_memory_size(federation.num_workers) if self.memory_size is None else self.memory_size
        if size:
            if self.qp.solver == "exact":
                compiled_active_set()  # ahead of the first round
            segments = federation.layout.segments if self.qp.scope == "tensor" else [(0, dim)]
            self.memory = GradientMemory(
                size,
                self._share.stop - self._share.start,
                decay=self.memory_decay,
                device=self.memory_device or federation.device,
                dtype=federation.dtype,
                segments=[clip(segment, self._share) for segment in segments],
                policy=self.memory_policy,
                seed=federation.seed,
                reduce=self._ranks.reduce if self._is_shared else None,
            )

    def begin_round(self, workers: np.ndarray, round: int) -> None:
        if self.memory:
            self.memory.admit(workers.tolist())

    def server_direction(self, updates: Updates) -> Vector:
        momentum = super().server_direction(updates)
        if self.memory is None:
            return momentum
        self.memory.update(updates.workers.tolist(), updates.delta[:, self._share])
        found = self.memory.project(
            momentum[self._share],
            margin=self.qp.server_margin,
            drop_threshold=self.qp.drop_threshold,
            solver=self.qp.solver,
            on_failure="keep",
        )
        before = torch.linalg.vector_norm(momentum)
        self.momentum = self._ranks.whole(found.vectors, len(momentum)) if self._is_shared else found.vectors
        self._diagnostics = {
            metrics.QP_SERVER_ACTIVE: float(found.active.double().mean()),
            metrics.QP_SERVER_RATIO: float(torch.linalg.vector_norm(self.momentum) / before),
            metrics.QP_SERVER_RESIDUAL: float(found.residual.max()),
            metrics.QP_FROZEN_TENSORS: float((found.norm_ratio < FROZEN).sum()),
            metrics.QP_FALLBACKS: float(found.fallbacks),
        }
        if self.qp.log_errors:
            error = torch.linalg.vector_norm(momentum - self.momentum)
            self._diagnostics |= {metrics.QP_SERVER_LENGTH: float(before), metrics.QP_SERVER_ERROR: float(error)}
        return self.momentum

    def state_dict(self) -> dict[str, Any]:
        """The whole memory, whichever ranks hold it, so that any number of ranks can resume."""
        saved = super().state_dict()
        if self.memory and self._is_shared:
            columns = self._ranks.whole(saved["memory"]["rows"].mT, len(self.momentum))
            saved["memory"] = {**saved["memory"], "rows": columns.mT.contiguous()}
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.memory:
            rows = state_dict["memory"]["rows"][:, self._share]
            state_dict = {**state_dict, "memory": {**state_dict["memory"], "rows": rows}}
        super().load_state_dict(state_dict)

    def diagnostics(self) -> dict[str, float]:
        return {**self._diagnostics, **(self.memory.statistics() if self.memory else {})}


def clip(segment: tuple[int, int], share: slice) -> tuple[int, int]:
    """A segment as seen from a share of the coordinates; empty where they do not meet."""
    start, stop = (min(max(edge, share.start), share.stop) - share.start for edge in segment)
    return start, stop


@dataclass(eq=False)
class GradMAW(ProjectedWorker, name="gradma_w", label="GradMA-W"):
    """Workers correct their gradients; the server is FedAvg's."""


@dataclass(eq=False)
class GradMAS(ProjectedServer, name="gradma_s", label="GradMA-S"):
    """FedAvg's workers; the server corrects its momentum by the memory of all workers' updates."""

    kind: ClassVar[str] = "server"


@dataclass(eq=False)
class GradMA(ProjectedServer, ProjectedWorker, name="gradma", label="GradMA"):
    """Corrected gradients on the workers and corrected momentum on the server."""

    kind: ClassVar[str] = "both"

    previous_model: str = previous_model_option(released="global")
    qp: JointQPOptions = group(JointQPOptions, "projection")
