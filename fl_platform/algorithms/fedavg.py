"""FedAvg: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017.

https://arxiv.org/abs/1602.05629

x_{t+1} = x_t - server_lr * avg_S(x_t - x_i), where x_i is worker i's model after I SGD steps. Departures from the
original: a fixed number of steps instead of epochs, and a server rate (1 is the original).
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm


@dataclass(eq=False)
class FedAvg(Algorithm, name="fedavg", label="FedAvg"):
    """Workers take local SGD steps; the server averages their updates."""

    equation: ClassVar[str] = r"x_{\tau+1} = x_\tau - \eta_l g,\; x_{t+1} = x_t - \eta_g d"
    kind: ClassVar[str] = "baseline"
