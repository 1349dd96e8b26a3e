"""FedPer: Arivazhagan et al., Federated Learning with Personalization Layers, 2019.

https://arxiv.org/abs/1912.00818. The last layers belong to each worker: it trains the whole model, keeps these
layers, and the server averages the others.

    worker: x_I from (base of x_t, own layers),   server: x_{t+1} = x_t - server_lr avg_S(x_t - x_I) on the base.

With personal_layers = 0 it is FedAvg. The server's own model keeps the last layers of x_0, so its accuracy says
nothing: workers are scored with ``evaluation.workers=true``.
Departures: BatchNorm's running statistics are averaged (``buffers=local`` keeps them, too). The grid is ours.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Federation
from fl_platform.algorithms.personal import PersonalPart, last_layers
from fl_platform.config.options import option


@dataclass(eq=False)
class FedPer(PersonalPart, name="fedper", label="FedPer"):
    """The last layers belong to each worker; the server averages the others."""

    equation: ClassVar[str] = r"x_0^i = (\text{base of } x_t, p_i),\; p_i \leftarrow \text{last layers of } x_I^i"

    personal_layers: int = option(1, "layers from the end that belong to workers", at_least=0, grid=(1, 2, 3))

    def personal_tensors(self, federation: Federation) -> list[bool]:
        return last_layers(federation, self.personal_layers, "algorithm.personal_layers")
