"""FedProx: Li et al., Federated Optimization in Heterogeneous Networks, 2020.

https://arxiv.org/abs/1812.06127

Workers minimise f_i(x) + mu/2 |x - x_t|^2. Their variable amount of local work is ``work.name=uniform``.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, LocalStep
from fl_platform.algorithms.momentum import SlowMomentum
from fl_platform.config.options import option
from fl_platform.models.flat import Stack


@dataclass(eq=False)
class FedProx(Algorithm, name="fedprox", label="FedProx"):
    """Workers are held near the global model by a quadratic penalty."""

    equation: ClassVar[str] = r"x_\tau - \eta_l (g + \mu (x_\tau - x_t))"

    mu: float = option(0.01, "weight of the penalty", at_least=0, grid=(0.001, 0.01, 0.1))

    def local_direction(self, step: LocalStep) -> Stack:
        return step.gradient + self.mu * (step.params - step.global_params)


@dataclass(eq=False)
class FedProxM(SlowMomentum, FedProx, name="fedproxm", label="FedProxM"):
    """FedProx workers, slow momentum on the server."""
