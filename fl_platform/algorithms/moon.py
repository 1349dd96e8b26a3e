"""MOON: Li, He and Song, Model-Contrastive Federated Learning, 2021.

https://arxiv.org/abs/2103.16257

Workers minimise CE + mu * mean softplus((cos(z, z_prev) - cos(z, z_glob)) / temperature), where z is the
representation of the local model, z_glob that of x_t and z_prev that of the worker's last local model, the last two
frozen and in evaluation mode. Departures from the original:

- z is the input of the last linear layer, before dropout, so that the network is the same for every method.
  ``projection_head=true`` is the original: Linear(w, w) - ReLU - Linear(w, 256) between that input, of width w, and
  the classifier, which then reads z, the head's output. Dropout before the classifier becomes dropout before the head.
- A worker seen for the first time has z_prev = z_glob: plain FedAvg, zero contrastive gradient
  (``first_model=initial`` takes x_0 instead).
- No local momentum, no weight decay, a fixed number of steps.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from fl_platform.algorithms.base import Algorithm, LocalBatch, LocalRun, Start
from fl_platform.algorithms.momentum import SlowMomentum
from fl_platform.config.options import option
from fl_platform.errors import UserError
from fl_platform.models.flat import Stack
from fl_platform.models.head import add_projection_head

PROJECTION_WIDTH = 256


@dataclass(eq=False)
class Moon(Algorithm, name="moon", label="MOON"):
    """Workers pull their representation towards the global model's and away from their own last one."""

    equation: ClassVar[str] = r"\mathrm{CE} + \mu\, \mathrm{softplus}((\cos(z, z_{prev}) - \cos(z, z_{glob})) / T)"

    mu: float = option(1.0, "weight of the contrastive loss", at_least=0)
    temperature: float = option(0.5, "temperature of the contrastive loss", above=0)
    projection_head: bool = option(
        False, "the authors' network: two linear layers more before the classifier, whose 256 outputs are z"
    )
    first_model: str = option(
        "global", "previous model of a worker never seen: x_t, or x_0", choices=("global", "initial")
    )

    @property
    def keeps(self) -> dict[str, Start]:
        if self.first_model == "initial":
            return {"last_params": Start.INITIAL_PARAMS, "last_buffers": Start.INITIAL_BUFFERS}
        return {"last_params": Start.GLOBAL_PARAMS, "last_buffers": Start.GLOBAL_BUFFERS}

    def adapt_network(self, network: nn.Module, example: Tensor, num_classes: int) -> None:
        if self.projection_head:
            try:
                add_projection_head(network, example, num_classes, PROJECTION_WIDTH)
            except ValueError as error:
                raise ValueError(
                    f"cannot be given a projection head (algorithm.projection_head=true): {error}"
                ) from None

    def local_loss(self, batch: LocalBatch) -> Tensor:
        loss = super().local_loss(batch)
        if self.mu == 0:
            return loss
        if batch.features is None:
            raise UserError(f"algorithm.name={self.name} needs a model with a linear layer, whose input it compares")
        z_global = batch.frozen_features(batch.global_params, batch.global_buffers)
        z_previous = batch.frozen_features(batch.state["last_params"], batch.state["last_buffers"])
        gap = cosine(batch.features, z_previous) - cosine(batch.features, z_global)
        return loss + self.mu * batch.mean(F.softplus(gap / self.temperature))

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        return {"last_params": run.params, "last_buffers": run.buffers}


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Zero, with zero gradient, where either vector is zero (a representation of dead ReLUs)."""
    return F.cosine_similarity(a.flatten(2), b.flatten(2), dim=2, eps=1e-8)


@dataclass(eq=False)
class MoonM(SlowMomentum, Moon, name="moonm", label="MOONM"):
    """MOON workers, slow momentum on the server."""
