"""Momentum that several methods share: on the server, or sent to the workers.

SlowMomentum, of FedAvgM and every M-variant: m_{t+1} = momentum_decay * m_t + d,  x_{t+1} = x_t - server_lr * m_{t+1},
m_0 = 0, where d is the direction the method has without momentum. No (1 - momentum_decay) factor and no Nesterov step;
parameters only, not buffers.

SentMomentum, of FedCM and MoFedSAM: workers step along fresh * direction + (1 - fresh) Delta_t, where
Delta_{t+1} = avg_S((x_t - x_i) / (I_i local_lr)) is the mean direction of the last round's steps, Delta_0 = 0.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, LocalStep, Updates, state, zeros
from fl_platform.config.options import option
from fl_platform.models.flat import Stack, Vector


@dataclass(eq=False)
class SlowMomentum(Algorithm):
    """Server mix-in: heavy-ball momentum on whatever direction the next class in line has."""

    kind: ClassVar[str] = "server"
    equation: ClassVar[str] = r"m \leftarrow \beta_1 m + d,\; x_{t+1} = x_t - \eta_g m"

    momentum_decay: float = option(0.5, "beta_1", at_least=0, below=1, grid=(0.1, 0.5, 0.9))
    momentum: Vector = state(zeros)

    def server_direction(self, updates: Updates) -> Vector:
        self.momentum.mul_(self.momentum_decay).add_(super().server_direction(updates))
        return self.momentum


@dataclass(eq=False)
class SentMomentum(Algorithm):
    """Mix-in: workers add the mean direction of the last round to that of the next class in line."""

    kind: ClassVar[str] = "both"
    group: ClassVar[str] = "worker correction"
    downloads: ClassVar[int] = 2

    fresh: float = option(0.1, "weight of the worker's own direction", above=0, at_most=1)
    last_direction: Vector = state(zeros)

    def local_direction(self, step: LocalStep) -> Stack:
        return self.fresh * super().local_direction(step) + (1 - self.fresh) * self.last_direction

    def server_direction(self, updates: Updates) -> Vector:
        self.last_direction = updates.average(updates.delta / (updates.effective_steps * updates.local_lr)[:, None])
        return super().server_direction(updates)
