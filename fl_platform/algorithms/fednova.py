"""FedNova: Wang et al., Tackling the Objective Inconsistency Problem in Federated Optimization, NeurIPS 2020.

https://arxiv.org/abs/2007.07481. Updates are divided by the number of steps behind them before they are averaged:

    x_{t+1} = x_t - server_lr (sum_S w_i a_i) (sum_S w_i (x_t - x_i) / a_i),

a_i the number of steps of worker i, or with local momentum the sum of the weights of its gradients. Workers that
take more steps (``local_epochs``, ``work.name``) then pull the model no harder than others. With equal steps it is
FedAvg.
Departures: the proximal variant and the momentum that is shared through the server are left out.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, Updates
from fl_platform.models.flat import Vector


@dataclass(eq=False)
class FedNova(Algorithm, name="fednova", label="FedNova"):
    """The server averages updates per step, so that workers with more steps do not count for more."""

    kind: ClassVar[str] = "server"
    group: ClassVar[str] = "worker correction"
    equation: ClassVar[str] = r"x \leftarrow x - \eta_g \bigl(\sum w_i a_i\bigr) \sum w_i d_i / a_i"

    def server_direction(self, updates: Updates) -> Vector:
        steps = updates.effective_steps
        per_step = super().server_direction(replace(updates, delta=updates.delta / steps[:, None]))
        return (updates.weights @ steps) * per_step
