"""Slow momentum on the server, the part that FedAvgM and every M-variant share.

m_{t+1} = momentum_decay * m_t + d,  x_{t+1} = x_t - server_lr * m_{t+1},  m_0 = 0, where d is the direction the
method has without momentum. No (1 - momentum_decay) factor and no Nesterov step; parameters only, not buffers.
"""

from dataclasses import dataclass

from fl_platform.algorithms.base import Algorithm, Updates, state, zeros
from fl_platform.config.options import option
from fl_platform.models.flat import Vector


@dataclass(eq=False)
class SlowMomentum(Algorithm):
    """Server mix-in: heavy-ball momentum on whatever direction the next class in line has."""

    momentum_decay: float = option(0.5, "beta_1", at_least=0, below=1, grid=(0.1, 0.5, 0.9))
    momentum: Vector = state(zeros)

    def server_direction(self, updates: Updates) -> Vector:
        self.momentum.mul_(self.momentum_decay).add_(super().server_direction(updates))
        return self.momentum
