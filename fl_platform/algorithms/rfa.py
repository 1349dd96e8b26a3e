"""RFA: Pillutla, Kakade and Harchaoui, Robust Aggregation for Federated Learning, 2022 (https://arxiv.org/abs/1912.13445).

The server descends along the geometric median of the updates, argmin_v sum_i w_i |v - d_i|, found by the smoothed
Weiszfeld algorithm: a few times

    b_i = w_i / max(smoothing, |v - d_i|),   v <- sum_i b_i d_i / sum_i b_i,

with the weights w_i of ``aggregation``. Every step is a weighted mean of the updates, so that it could be computed by
secure aggregation: in such a system each step is a further exchange with the workers, which the bytes counted here
leave out. x_{t+1} = x_t - server_lr * v; v can stand in for the average of other methods, too.

Departures: v starts from 0, the model that every worker started from, because no faulty update can move it. The
authors' scripts take two to four iterations (github.com/krishnap25/RFA).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fl_platform.algorithms.base import Algorithm, Updates
from fl_platform.config.options import option
from fl_platform.models.flat import Vector


@dataclass(eq=False)
class Rfa(Algorithm, name="rfa", label="RFA"):
    """The server takes the geometric median of the updates."""

    equation: ClassVar[str] = r"d = \arg\min_v \sum_i w_i |v - d_i|"
    kind: ClassVar[str] = "server"
    group: ClassVar[str] = "robust"

    iterations: int = option(3, "steps of the Weiszfeld algorithm", at_least=1, at_most=10_000)
    smoothing: float = option(1e-6, "nu: the least distance that an update is divided by", above=0)

    def server_direction(self, updates: Updates) -> Vector:
        median = torch.zeros_like(updates.global_params)
        for _ in range(self.iterations):
            distances = torch.linalg.vector_norm(updates.delta - median, dim=1)
            shares = updates.weights / distances.clamp_min(self.smoothing)
            median = (shares / shares.sum()) @ updates.delta
        return median
