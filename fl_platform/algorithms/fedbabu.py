"""FedBABU: Oh, Kim and Yun, FedBABU: Toward Enhanced Representation for Federated Image Classification, ICLR 2022.

https://arxiv.org/abs/2106.06042. The last layer keeps its initial values while the federation trains the others
(the body):

    x_{tau+1} = x_tau - local_lr g on the body.

Each worker fine-tunes the whole model before it uses it: ``evaluation.workers=true evaluation.finetune_steps=5``
scores that. With head_layers = 0 it is FedAvg.
Departures: the authors fine-tune for epochs, here it is steps; the fixed head is counted among what is sent.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, Federation, LocalStep, state
from fl_platform.algorithms.personal import last_layers
from fl_platform.config.options import option
from fl_platform.models.flat import Stack


@dataclass(eq=False)
class FedBABU(Algorithm, name="fedbabu", label="FedBABU"):
    """The federation trains all but the last layer, which keeps its initial values."""

    group: ClassVar[str] = "personalised"
    equation: ClassVar[str] = r"x_\tau - \eta_l\, g_{body}"

    head_layers: int = option(1, "layers from the end that are not trained", at_least=0)
    is_head: Tensor = state()  # (d,), of bool

    def prepare(self, federation: Federation) -> None:
        super().prepare(federation)
        chosen = last_layers(federation, self.head_layers, "algorithm.head_layers")
        mask = [torch.full((size,), mine) for size, mine in zip(federation.layout.sizes, chosen, strict=True)]
        self.is_head = torch.cat(mask).to(federation.device)

    def local_direction(self, step: LocalStep) -> Stack:
        return super().local_direction(step).masked_fill(self.is_head, 0)
