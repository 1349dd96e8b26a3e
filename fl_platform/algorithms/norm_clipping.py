"""Norm clipping: Sun et al., Can You Really Backdoor Federated Learning?, 2019 (https://arxiv.org/abs/1911.07963).

x_{t+1} = x_t - server_lr * avg_S(d_i * min(1, max_norm / |d_i|)): no worker moves the model farther than its weight
times max_norm. ``max_norm=null`` is FedAvg. The direction can stand in for the average of other methods.

Departures: the weak noise that the paper adds as a second defence is left out; DP-FedAvg has it, with an accountant.
The authors' code clips at 1.0 where nothing else is said (targeted_attack of github.com/google-research/federated); how
long updates are depends on the model and the rates, and the grid is ours.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, Updates
from fl_platform.algorithms.clipping import clip_factors
from fl_platform.config.options import option
from fl_platform.models.flat import Vector


@dataclass(eq=False)
class NormClipping(Algorithm, name="norm_clipping", label="Norm clipping"):
    """The server averages updates that are shortened to a largest norm."""

    equation: ClassVar[str] = r"d = \mathrm{avg}(d_i \min(1, c / |d_i|))"
    kind: ClassVar[str] = "server"
    group: ClassVar[str] = "robust"

    max_norm: float | None = option(3.0, "longest update; null: any", above=0, grid=(3.0, 5.0, 10.0))

    def server_direction(self, updates: Updates) -> Vector:
        if self.max_norm is None:
            return updates.mean_delta
        return (updates.weights * clip_factors(updates.delta, self.max_norm)) @ updates.delta
