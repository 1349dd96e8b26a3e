"""FedMom: Huo et al., Faster On-Device Training Using New Federated Momentum Algorithm, 2020.

https://arxiv.org/abs/2002.02090. FedAvg with Nesterov's momentum on the server. The authors write

    v_{t+1} = x_t - server_lr * d,   x_{t+1} = v_{t+1} + momentum_decay (v_{t+1} - v_t),   v_0 = x_0;

with m = (v_t - v_{t+1}) / server_lr this is

    m_{t+1} = momentum_decay * m_t + d,   x_{t+1} = x_t - server_lr (d + momentum_decay * m_{t+1}),   m_0 = 0,

which is computed here. A server mix-in: d is the direction of the next class in line.
Departures: none in the recursion. The authors set momentum_decay = 0.9; the grid is that of the other momenta.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, Updates, state, zeros
from fl_platform.config.options import option
from fl_platform.models.flat import Vector


@dataclass(eq=False)
class FedMom(Algorithm, name="fedmom", label="FedMom"):
    """FedAvg with Nesterov momentum on the server."""

    kind: ClassVar[str] = "server"
    group: ClassVar[str] = "server optimiser"
    equation: ClassVar[str] = r"m \leftarrow \beta m + d,\; x \leftarrow x - \eta_g (d + \beta m)"

    momentum_decay: float = option(0.9, "beta", at_least=0, below=1, grid=(0.1, 0.5, 0.9))
    momentum: Vector = state(zeros)

    def server_direction(self, updates: Updates) -> Vector:
        direction = super().server_direction(updates)
        self.momentum.mul_(self.momentum_decay).add_(direction)
        return direction + self.momentum_decay * self.momentum
