"""DOMO: Xu and Huang, Coordinating Momenta for Cross-silo Federated Learning, AAAI 2022.

https://arxiv.org/abs/2102.03970. Momentum on the server, momentum on the workers (``local_momentum``), and workers
that start where the server's momentum leads:

    x_{t,0}^i = x_t - fusion M_t,   M_{t+1} = momentum_decay M_t + avg_S(x_{t,0}^i - x_I^i),
    x_{t+1} = x_t - server_lr M_{t+1},

M_0 = 0. Only the workers' own steps enter the momentum. With fusion = 0 it is FedAvgM.
Departures: M is the authors' server momentum times I local_lr, which stay the same in a run. This is their variant
that fuses once, before the first step; the one that spreads it over the steps is left out. The recursion was checked
against public code of the method. No code of the authors was found that says which values of fusion they tried: the
default and grids are those of the other momenta. The authors' workers derive M from the last two models; here it is
counted as sent, because a worker may have missed a round.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, LocalStart, Updates, state, zeros
from fl_platform.config.options import option
from fl_platform.models.flat import Stack, Vector


@dataclass(eq=False)
class Domo(Algorithm, name="domo", label="DOMO"):
    """Workers start where the server's momentum leads, which only their own steps enter."""

    kind: ClassVar[str] = "both"
    group: ClassVar[str] = "worker correction"
    downloads: ClassVar[int] = 2
    equation: ClassVar[str] = (
        r"x_{t,0}^i = x_t - \beta M,\; M \leftarrow \mu_s M + \mathrm{avg}(x_{t,0}^i - x_I^i),\; "
        r"x_{t+1} = x_t - \eta_g M"
    )

    momentum_decay: float = option(0.5, "mu_s: of the server's momentum", at_least=0, below=1, grid=(0.1, 0.5, 0.9))
    fusion: float = option(0.5, "beta: share of the momentum that workers begin with", at_least=0, grid=(0.1, 0.5, 0.9))
    momentum: Vector = state(zeros)

    def start_local(self, start: LocalStart) -> tuple[Stack | Vector, Stack | Vector]:
        return start.global_params - self.fusion * self.momentum, start.buffers

    def worker_model(self, start: LocalStart) -> tuple[Stack | Vector, Stack | Vector]:
        return start.global_params, start.buffers

    def server_direction(self, updates: Updates) -> Vector:
        own = super().server_direction(updates) - self.fusion * self.momentum
        self.momentum = self.momentum_decay * self.momentum + own
        return self.momentum
