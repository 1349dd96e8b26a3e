"""FedAdam, FedYogi, FedAdagrad: Reddi et al., Adaptive Federated Optimization, ICLR 2021.

https://arxiv.org/abs/2003.00295, Algorithm 2. With d = avg_S(x_t - x_i), or whatever direction the next class in
line has,

    m_t = beta_1 m_{t-1} + (1 - beta_1) d,   x_{t+1} = x_t - server_lr * m_t / (sqrt(v_t) + tau),   m_{-1} = 0,
    FedAdam:     v_t = beta_2 v_{t-1} + (1 - beta_2) d^2
    FedYogi:     v_t = v_{t-1} - (1 - beta_2) d^2 sign(v_{t-1} - d^2)
    FedAdagrad:  v_t = v_{t-1} + d^2

coordinate by coordinate, v_{-1} = tau^2, no bias correction. Each class is a server mix-in: ``class
FedProxAdam(FedAdam, FedProx, name=...)`` is FedProx's workers with Adam on the server. As tau grows every
coordinate is divided by the same number, and the direction becomes that of m_t. A coordinate moves by about
server_lr per round, so server_lr has to be far below FedAvg's 1.
Grids: the authors' best taus are powers of ten from 1e-5 to 0.1, and they recommend 0.001; their best server rates are
from 0.003 (EMNIST) to 1 (CIFAR-100), and 10 in one case (optimization/docs/hyperparameters.md of
github.com/google-research/federated).
Departures: the authors choose any v_{-1} >= tau^2, and their code starts from v = 0 and has beta_2 = 0.999;
parameters only, running statistics are averaged.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fl_platform.algorithms.base import Algorithm, Federation, Updates, state, zeros
from fl_platform.config.options import option
from fl_platform.models.flat import Vector

TAUS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
STEP = r"x \leftarrow x - \eta_g\, m / (\sqrt v + \tau),\; v \leftarrow"


@dataclass(eq=False)
class AdaptiveServer(Algorithm):
    """Server mix-in: momentum divided by the root of the squares that the server has seen."""

    kind: ClassVar[str] = "server"
    group: ClassVar[str] = "server optimiser"

    first_decay: float = option(0.9, "beta_1: of the momentum", at_least=0, below=1)
    tau: float = option(1e-3, "degree of adaptivity: the smallest divisor", above=0, grid=TAUS)
    momentum: Vector = state(zeros)
    squares: Vector = state(zeros)

    def prepare(self, federation: Federation) -> None:
        super().prepare(federation)
        self.squares.fill_(self.tau**2)

    def server_direction(self, updates: Updates) -> Vector:
        direction = super().server_direction(updates)
        self.momentum.mul_(self.first_decay).add_(direction, alpha=1 - self.first_decay)
        self.accumulate(direction.square())
        return self.momentum / (self.squares.sqrt() + self.tau)

    def accumulate(self, square: Vector) -> None:
        """Take d^2 into the squares."""
        raise NotImplementedError


@dataclass(eq=False)
class FedAdam(AdaptiveServer, name="fedadam", label="FedAdam"):
    """The server divides its momentum by the root of a running mean of squared updates."""

    equation: ClassVar[str] = rf"{STEP} \beta_2 v + (1 - \beta_2) d^2"

    second_decay: float = option(0.99, "beta_2: of the squares", at_least=0, below=1)

    def accumulate(self, square: Vector) -> None:
        self.squares.mul_(self.second_decay).add_(square, alpha=1 - self.second_decay)


@dataclass(eq=False)
class FedYogi(AdaptiveServer, name="fedyogi", label="FedYogi"):
    """As FedAdam, with squares that change by no more than the new one."""

    equation: ClassVar[str] = rf"{STEP} v - (1 - \beta_2) d^2 \mathrm{{sign}}(v - d^2)"

    second_decay: float = option(0.99, "beta_2: of the squares", at_least=0, below=1)

    def accumulate(self, square: Vector) -> None:
        self.squares.sub_(square * torch.sign(self.squares - square), alpha=1 - self.second_decay)


@dataclass(eq=False)
class FedAdagrad(AdaptiveServer, name="fedadagrad", label="FedAdagrad"):
    """The server divides its updates by the root of the sum of their squares; beta_1 = 0 in the paper."""

    equation: ClassVar[str] = rf"{STEP} v + d^2"

    first_decay: float = option(0.0, "beta_1: of the momentum", at_least=0, below=1)

    def accumulate(self, square: Vector) -> None:
        self.squares.add_(square)
