"""FedAvgM: Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution, 2019.

https://arxiv.org/abs/1909.06335

m_{t+1} = momentum_decay * m_t + avg_S(x_t - x_i),  x_{t+1} = x_t - server_lr * m_{t+1}.
"""

from dataclasses import dataclass

from fl_platform.algorithms.momentum import SlowMomentum


@dataclass(eq=False)
class FedAvgM(SlowMomentum, name="fedavgm", label="FedAvgM"):
    """FedAvg with heavy-ball momentum on the server."""
