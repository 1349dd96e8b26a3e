"""FedDyn: Acar et al., Federated Learning Based on Dynamic Regularization, 2021.

https://arxiv.org/abs/2111.04263

In the division-free form with u_i = -g_i / alpha, the sum of worker i's past displacements:

    x_{tau+1} = x_tau - local_lr (g + alpha (x_tau - x_t + u_i)),   u_i <- u_i + (x_I - x_t),
    x_{t+1} = avg_S(x_I) + avg_N(u_i).

The correction averages over all N workers; those not sampled keep their u_i. ``server_lr`` is absent in the original
(1 is the original); here x_{t+1} = x_t - server_lr (x_t - x_dyn). ``alpha_adapt`` scales a worker's alpha by
mean n / n_i as the authors do for unbalanced data; off by default because workers with two samples would get a
several-hundredfold alpha. The evaluated model is x_{t+1}; the authors evaluate the mean of the active workers' models
(``evaluated=active_mean``). The other one is scored beside it at every evaluation: ``test/active_mean_accuracy`` and
``test/active_mean_loss``, or ``test/server_accuracy`` and ``test/server_loss``.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, LocalRun, LocalStep, Start, Updates, state, zeros
from fl_platform.config.options import option
from fl_platform.models.flat import Stack, Vector


@dataclass(eq=False)
class FedDyn(Algorithm, name="feddyn", label="FedDyn"):
    """Workers' objectives are corrected so that their minima agree with the global one."""

    equation: ClassVar[str] = r"x_\tau - \eta_l (g + \alpha (x_\tau - x_t + u_i)),\; x_{t+1} = \bar x_I + \bar u"
    kind: ClassVar[str] = "both"

    alpha: float = option(0.01, "weight of the dynamic regulariser", above=0, grid=(0.001, 0.01, 0.1))
    alpha_adapt: bool = option(False, "scale alpha by mean n / n_i for each worker")
    evaluated: str = option(
        "server", "model whose accuracy counts: x_{t+1}, or avg_S(x_I)", choices=("server", "active_mean")
    )
    mean_displacement: Vector = state(zeros)
    active_mean: Vector | None = state()  # avg_S(x_I); None before the first server step

    @property
    def keeps(self) -> dict[str, Start]:
        return {"displacement": Start.ZEROS}

    def local_direction(self, step: LocalStep) -> Stack:
        alpha = self.alpha / step.relative_sizes[:, None] if self.alpha_adapt else self.alpha
        return step.gradient + alpha * (step.params - step.global_params + step.state["displacement"])

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        return {"displacement": run.state["displacement"] - run.delta}

    def server_direction(self, updates: Updates) -> Vector:
        self.mean_displacement -= updates.population_sum(updates.delta)
        self.active_mean = updates.global_params - updates.mean_delta
        return updates.mean_delta - self.mean_displacement

    def evaluated_params(self, global_params: Vector) -> Vector:
        return self._scored(global_params)[self.evaluated]

    def also_evaluated(self, global_params: Vector) -> dict[str, Vector]:
        return {name: params for name, params in self._scored(global_params).items() if name != self.evaluated}

    def _scored(self, global_params: Vector) -> dict[str, Vector]:
        """Both models; they are one before any worker has reported."""
        mean = global_params if self.active_mean is None else self.active_mean.to(global_params)
        return {"server": global_params, "active_mean": mean}
