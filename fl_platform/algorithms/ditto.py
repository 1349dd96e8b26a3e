"""Ditto: Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021.

https://arxiv.org/abs/2012.04221. Beside FedAvg, every worker trains a model v_i of its own, held near the global
one:

    v_i <- v_i - local_lr (grad f_i(v_i) + penalty (v_i - x_t)),   v_i = x_0 at first,

a step on the batch of each of its local steps. The server's model is FedAvg's. With penalty = 0 the v_i are trained
alone; the larger it is, the nearer they stay to x_t.
Departures: as many personal steps as local ones, on the same batches, at the same rate (the authors allow others);
they are plain SGD, also with local momentum, decay or clipping. v_i is used with the running statistics of the
global model, or with the worker's own (``buffers=local``), which come from its local model. The authors' scripts have
lambda = 1 (run_*_lam1.sh of github.com/litian96/ditto); the other values of the grid were not found there.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, LocalRun, LocalStart, LocalStep, Start
from fl_platform.config.options import option
from fl_platform.models.flat import Stack, Vector


@dataclass(eq=False)
class Ditto(Algorithm, name="ditto", label="Ditto"):
    """FedAvg, and beside it a model of each worker's own that is held near the global one."""

    group: ClassVar[str] = "personalised"
    gradients: ClassVar[int] = 2
    equation: ClassVar[str] = r"v_i \leftarrow v_i - \eta_l (\nabla f_i(v_i) + \lambda (v_i - x_t))"

    penalty: float = option(0.1, "lambda: pull of the global model", at_least=0, grid=(0.05, 0.1, 0.2, 1.0, 2.0))

    @property
    def keeps(self) -> dict[str, Start]:
        return {"personal": Start.INITIAL_PARAMS}

    def local_direction(self, step: LocalStep) -> Stack:
        own = step.recall("personal", step.state["personal"])
        pulled = step.gradient_at(own) + self.penalty * (own - step.global_params)
        step.remember("personal", own - step.local_lr * pulled)
        return super().local_direction(step)

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        return {"personal": run.remembered["personal"]}

    def worker_model(self, start: LocalStart) -> tuple[Stack | Vector, Stack | Vector]:
        return start.state["personal"], start.buffers
