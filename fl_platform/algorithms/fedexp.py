"""FedExP: Jhunjhunwala, Wang and Joshi, Speeding Up Federated Averaging via Extrapolation, ICLR 2023.

https://arxiv.org/abs/2301.09604. The server's step is lengthened where updates disagree, as in projections onto
convex sets:

    x_{t+1} = x_t - server_lr * max(1, avg_S |d_i|^2 / (2 (|avg_S d_i|^2 + epsilon))) avg_S d_i,   d_i = x_t - x_i.

The authors report the mean of the last two models, which oscillate (``evaluated=last_two``). A server mix-in:
``class FedProxExP(FedExP, FedProx, name=...)`` lengthens the step of FedProx. With one worker it is FedAvg.
Departures: server_lr beside the computed rate (1 is the original), no decay of the local rate, weights of the
aggregation in place of 1/S. The authors' code adds S epsilon where the paper adds epsilon, and lets it decay with the
square of the local rate. Its epsilon is 0.001, on EMNIST 0.1 (main.py of github.com/Divyansh03/FedExP); the grid has
a value between them, too.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fl_platform.algorithms.base import Algorithm, Updates, state
from fl_platform.config.options import option
from fl_platform.models.flat import Vector


@dataclass(eq=False)
class FedExP(Algorithm, name="fedexp", label="FedExP"):
    """The server's step grows with the disagreement of the workers' updates."""

    kind: ClassVar[str] = "server"
    group: ClassVar[str] = "server optimiser"
    equation: ClassVar[str] = r"x \leftarrow x - \eta_g \max(1, \mathrm{avg}|d_i|^2 / 2(|d|^2 + \epsilon))\, d"

    epsilon: float = option(1e-3, "added to the square of the mean update", at_least=0, grid=(1e-3, 1e-2, 1e-1))
    evaluated: str = option(
        "server", "model whose accuracy counts: x_{t+1}, or its mean with x_t", choices=("server", "last_two")
    )
    rate: Vector | None = state()  # of the last server step
    previous: Vector | None = state()  # x_t; None before the first server step

    def server_direction(self, updates: Updates) -> Vector:
        mean_square = updates.weights @ updates.delta.square().sum(1)
        square_mean = updates.mean_delta.square().sum()
        self.rate = torch.clamp(mean_square / (2 * (square_mean + self.epsilon)).clamp_min(1e-30), min=1)
        self.previous = updates.global_params
        return self.rate * super().server_direction(updates)

    def evaluated_params(self, global_params: Vector) -> Vector:
        if self.evaluated == "server" or self.previous is None:
            return global_params
        return (global_params + self.previous.to(global_params)) / 2

    def diagnostics(self) -> dict[str, float]:
        return {"server/extrapolation": 1.0 if self.rate is None else float(self.rate)}
