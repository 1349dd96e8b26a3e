"""APFL: Deng, Kamani and Mahdavi, Adaptive Personalized Federated Learning, 2020.

https://arxiv.org/abs/2003.13461. Every worker uses a mixture of a model of its own and of the shared one. Beside
FedAvg's steps x_{tau+1} = x_tau - local_lr grad f_i(x_tau), and on the same batches,

    v_i <- v_i - local_lr alpha grad f_i(alpha v_i + (1 - alpha) x_tau),   v_i = x_0 at first,

where alpha grad f_i is the derivative by v_i. The worker uses alpha v_i + (1 - alpha) x_t. With alpha = 0 that is
FedAvg's model, with alpha = 1 one that is trained alone.
Departures: alpha is fixed and the same for all (the authors can adapt it on each worker); personal steps are plain
SGD. The mixture is used with the running statistics of the global model, or with the worker's own
(``buffers=local``). The authors' code mixes the logits of both models instead of their parameters, and has alpha = 0.5
where it is not adapted (github.com/MLOPTPSU/FedTorch); the neighbours in the grid are ours.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, LocalRun, LocalStart, LocalStep, Start
from fl_platform.config.options import option
from fl_platform.models.flat import Stack, Vector


@dataclass(eq=False)
class APFL(Algorithm, name="apfl", label="APFL"):
    """FedAvg, and beside it a model of each worker's own that is used mixed with the global one."""

    group: ClassVar[str] = "personalised"
    gradients: ClassVar[int] = 2
    equation: ClassVar[str] = r"v_i \leftarrow v_i - \eta_l \alpha \nabla f_i(\alpha v_i + (1 - \alpha) x_\tau)"

    alpha: float = option(0.5, "share of the worker's own model", at_least=0, at_most=1, grid=(0.25, 0.5, 0.75))

    @property
    def keeps(self) -> dict[str, Start]:
        return {"personal": Start.INITIAL_PARAMS}

    def local_direction(self, step: LocalStep) -> Stack:
        own = step.recall("personal", step.state["personal"])
        mixed = self.alpha * own + (1 - self.alpha) * step.params
        step.remember("personal", own - step.local_lr * self.alpha * step.gradient_at(mixed))
        return super().local_direction(step)

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        return {"personal": run.remembered["personal"]}

    def worker_model(self, start: LocalStart) -> tuple[Stack | Vector, Stack | Vector]:
        return self.alpha * start.state["personal"] + (1 - self.alpha) * start.global_params, start.buffers
