"""FedCM: Xu, Wang, Wang and Yao, 2021.

https://arxiv.org/abs/2106.10874. The server's momentum acts within the local steps:

    x_{tau+1} = x_tau - local_lr (alpha g + (1 - alpha) Delta_t),   Delta_{t+1} = avg_S((x_t - x_i) / (I_i local_lr)),

Delta_0 = 0, I_i the number of steps of worker i. With alpha = 1 it is FedAvg.
Departures: the authors' server moves by eta_g Delta_{t+1}; here it moves by server_lr avg_S(x_t - x_i), the same
with eta_g = server_lr I local_lr. No weight decay and no decay of the local rate. alpha = 0.1 is what the code of
FedSpeed's authors has for FedCM (github.com/woodenchild95/FL-Simulator); its neighbours in the grid are ours.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.momentum import SentMomentum
from fl_platform.config.options import option


@dataclass(eq=False)
class FedCM(SentMomentum, name="fedcm", label="FedCM"):
    """Every local step mixes the gradient with the direction of the last round."""

    equation: ClassVar[str] = r"x_\tau - \eta_l (\alpha g + (1 - \alpha) \Delta_t),\; \Delta_{t+1} = d / (I \eta_l)"

    fresh: float = option(0.1, "alpha: weight of the gradient", above=0, at_most=1, grid=(0.05, 0.1, 0.5))
