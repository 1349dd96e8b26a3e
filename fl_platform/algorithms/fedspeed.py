"""FedSpeed: Sun et al., FedSpeed: Larger Local Interval, Less Communication Round, and Higher Generalization, ICLR
2023.

https://arxiv.org/abs/2302.10429. A proximal term, its correction by what it has done so far, and a gradient taken
uphill:

    g~ = (1 - alpha) g + alpha grad f_i(x_tau + rho g / |g|),
    x_{tau+1} = x_tau - local_lr (g~ + (x_tau - x_t - h_i) / penalty),   h_i <- h_i + (x_t - x_I),   h_i = 0 at first,
    the worker sends x_I - h_i (with the new h_i), and the server averages these.

h_i is the authors' lambda * g^_i, lambda the penalty. With alpha = 0 it takes one gradient per step; with alpha = 0
and a very large penalty the workers are FedAvg's and what they send is x_I moved on by everything they have sent
before.
Departures: server_lr (1 is the original). The paper writes x_tau + rho g; the authors' code
(github.com/woodenchild95/FL-Simulator) divides by |g|, as here. That code averages h_i over all workers, as FedDyn
does, where the paper and this file have the cohort's. Its weight of the proximal term is 0.1 and its rho 0.1, which are
the defaults, penalty = 10; the grids have stronger pulls and other distances beside them. With penalty = local_lr a
step begins at x_t + h_i again, and below it steps overshoot.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, LocalRun, LocalStep, Start, Updates
from fl_platform.config.options import option
from fl_platform.models.flat import Stack, Vector


@dataclass(eq=False)
class FedSpeed(Algorithm, name="fedspeed", label="FedSpeed"):
    """Workers correct the bias of their proximal term, and follow gradients taken uphill."""

    kind: ClassVar[str] = "both"
    group: ClassVar[str] = "worker correction"
    gradients: ClassVar[int] = 2
    sends: ClassVar[tuple[str, ...]] = ("corrected_update",)
    equation: ClassVar[str] = (
        r"x_\tau - \eta_l (\tilde g + (x_\tau - x_t - h_i) / \lambda),\; h_i \leftarrow h_i + d_i,\; "
        r"x_{t+1} = x_t - \eta_g\, \mathrm{avg}(d_i + h_i)"
    )

    penalty: float = option(
        10.0, "lambda: the proximal term is |x - x_t|^2 / (2 lambda)", above=0, grid=(0.1, 1.0, 10.0)
    )
    rho: float = option(0.1, "how far uphill the second gradient is taken", at_least=0, grid=(0.01, 0.05, 0.1, 0.2))
    alpha: float = option(1.0, "weight of the second gradient", at_least=0, at_most=1)

    @property
    def keeps(self) -> dict[str, Start]:
        return {"correction": Start.ZEROS}

    def local_direction(self, step: LocalStep) -> Stack:
        gradient = step.gradient
        if self.alpha > 0 and self.rho > 0:
            norms = gradient.norm(dim=1, keepdim=True).clamp_min(1e-12)
            uphill = step.gradient_at(step.params + self.rho * gradient / norms)
            gradient = (1 - self.alpha) * gradient + self.alpha * uphill
        return gradient + (step.params - step.global_params - step.state["correction"]) / self.penalty

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        correction = run.state["correction"] + run.delta
        return {"correction": correction, "corrected_update": run.delta + correction}

    def server_direction(self, updates: Updates) -> Vector:
        return super().server_direction(replace(updates, delta=updates.sent["corrected_update"]))
