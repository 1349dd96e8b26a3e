"""FedNTD: Lee et al., Preservation of the Global Knowledge by Not-True Distillation, NeurIPS 2022.

https://arxiv.org/abs/2106.03097. Workers minimise

    CE(a) + beta T^2 KL(softmax(b / T) || softmax(a / T)),

both distributions over the classes that are not the sample's own; a are the worker's logits and b those of the
global model, frozen and in evaluation mode. With beta = 0, and at the first step of a round without dropout and
BatchNorm, it is FedAvg.
Departures: the factor T^2 is that of the authors' code, which has beta = T = 1 (config/fedntd.json of
github.com/Lee-Gihun/FedNTD); the neighbours of beta in the grid are ours.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, LocalBatch
from fl_platform.config.options import option


@dataclass(eq=False)
class FedNTD(Algorithm, name="fedntd", label="FedNTD"):
    """Workers keep the global model's view of the classes that a sample does not belong to."""

    group: ClassVar[str] = "worker correction"
    equation: ClassVar[str] = r"\ell = \mathrm{CE} + \beta T^2\, \mathrm{KL}_{c \ne y}(b, a)"

    beta: float = option(1.0, "weight of the distillation", at_least=0, grid=(0.3, 1.0, 3.0))
    temperature: float = option(1.0, "softens both distributions", above=0)

    def local_loss(self, batch: LocalBatch) -> Tensor:
        loss = super().local_loss(batch)
        if self.beta == 0:
            return loss
        classes = torch.arange(batch.logits.shape[-1], device=batch.labels.device)
        is_true = batch.labels.unsqueeze(-1) == classes
        own, known = (
            F.log_softmax((logits / self.temperature).masked_fill(is_true, -torch.inf), dim=-1).masked_fill(is_true, 0)
            for logits in (batch.logits, batch.global_logits)
        )
        divergence = torch.sum((known.exp() * (known - own)).masked_fill(is_true, 0), dim=-1)
        return loss + self.beta * self.temperature**2 * batch.mean(divergence)
