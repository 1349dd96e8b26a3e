"""FedSAM and MoFedSAM: Qu et al., Generalized Federated Learning via Sharpness Aware Minimization, ICML 2022.

https://arxiv.org/abs/2206.02618. Workers follow the gradient of the same batch at the worst point within rho:

    g~ = grad f_i(x_tau + rho g / |g|),   x_{tau+1} = x_tau - local_lr g~.

MoFedSAM mixes in the direction of the last round, Delta_t = avg_S(x_{t-1} - x_i) / (I local_lr), Delta_0 = 0:

    x_{tau+1} = x_tau - local_lr (beta g~ + (1 - beta) Delta_t).

With rho = 0 FedSAM is FedAvg and MoFedSAM is FedCM with alpha = beta.
Departures: server_lr scales the mean update (1 averages the models); the second gradient has dropout of its own,
and running statistics come from the first. The code of FedSpeed's authors has rho = 0.1 and beta = 0.1 for both methods
(github.com/woodenchild95/FL-Simulator), SAM itself rho = 0.05; the other values of the grids are ours.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, LocalStep
from fl_platform.algorithms.momentum import SentMomentum
from fl_platform.config.options import option
from fl_platform.models.flat import Stack


@dataclass(eq=False)
class FedSAM(Algorithm, name="fedsam", label="FedSAM"):
    """Workers look for flat minima: they follow the gradient at the worst point nearby."""

    group: ClassVar[str] = "worker correction"
    gradients: ClassVar[int] = 2
    equation: ClassVar[str] = r"x_\tau - \eta_l \nabla f_i(x_\tau + \rho\, g / |g|)"

    rho: float = option(0.05, "how far the worst point may be", at_least=0, grid=(0.01, 0.05, 0.1, 0.5))

    def local_direction(self, step: LocalStep) -> Stack:
        if self.rho == 0:
            return super().local_direction(step)
        norms = step.gradient.norm(dim=1, keepdim=True)
        return step.gradient_at(step.params + self.rho * step.gradient / norms.clamp_min(1e-12))


@dataclass(eq=False)
class MoFedSAM(SentMomentum, FedSAM, name="mofedsam", label="MoFedSAM"):
    """FedSAM's gradient mixed with the direction of the last round."""

    equation: ClassVar[str] = r"x_\tau - \eta_l (\beta \nabla f_i(x_\tau + \rho\, g / |g|) + (1 - \beta) \Delta_t)"

    fresh: float = option(0.1, "beta: weight of the gradient", above=0, at_most=1, grid=(0.1, 0.5, 0.9))
