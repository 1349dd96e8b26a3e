"""FedMLB: Kim, Kim and Han, Multi-Level Branched Regularization for Federated Learning, 2022.

https://arxiv.org/abs/2207.06936

The network is cut into M + 1 blocks. Hybrid path k runs the worker's blocks 1..k and then frozen copies of the global
model's. Workers minimise

    CE(a) + hybrid_weight * 1/M sum_k CE(a^k) + similarity_weight * 1/M sum_k KL(softmax(a^k / T) || softmax(a / T)),

with gradient through both arguments of KL and no T^2 factor. Frozen blocks normalise by the batch statistics of the
hybrid features and draw dropout of their own (``frozen_blocks=eval``: running statistics, no dropout); the
worker's running statistics come from the main path alone.
Departures: no gradient clipping, weight decay or rate decay; BatchNorm as in the model instead of GroupNorm.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, Federation, LocalBatch
from fl_platform.algorithms.momentum import SlowMomentum
from fl_platform.config.options import option
from fl_platform.errors import UserError


@dataclass(eq=False)
class FedMLB(Algorithm, name="fedmlb", label="FedMLB"):
    """Workers are regularised by paths that end in frozen blocks of the global model."""

    equation: ClassVar[str] = (
        r"\mathrm{CE}(a) + \sum_k (\lambda_1 \mathrm{CE}(a^k) + \lambda_2 \mathrm{KL}(a^k, a)) / M"
    )

    hybrid_weight: float = option(1.0, "lambda_1: cross-entropy of the hybrid paths", at_least=0)
    similarity_weight: float = option(1.0, "lambda_2: divergence of the main path from the hybrid ones", at_least=0)
    temperature: float = option(1.0, "softens both distributions", above=0)

    frozen_blocks: str = option(
        "train", "mode of the global blocks: batch statistics and dropout, or running ones", choices=("train", "eval")
    )

    def prepare(self, federation: Federation) -> None:
        super().prepare(federation)
        if federation.num_blocks < 2:
            raise UserError(
                f"algorithm.name={self.name} needs a model cut into blocks: an nn.Sequential of at least two modules"
            )

    def local_loss(self, batch: LocalBatch) -> Tensor:
        loss = super().local_loss(batch)
        if self.hybrid_weight == 0 and self.similarity_weight == 0:
            return loss
        main = F.log_softmax(batch.logits / self.temperature, dim=-1)
        paths = len(batch.activations) - 1
        for k in range(1, paths + 1):
            hybrid = batch.run_blocks(k, batch.activations[k - 1], batch.global_params, self.frozen_blocks == "train")
            loss = loss + self.hybrid_weight / paths * batch.cross_entropy(hybrid)
            target = F.log_softmax(hybrid / self.temperature, dim=-1)
            loss = loss + self.similarity_weight / paths * batch.mean(divergence(target, main))
        return loss


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) of each sample."""
    return torch.sum(log_p.exp() * (log_p - log_q), dim=-1)


@dataclass(eq=False)
class FedMLBM(SlowMomentum, FedMLB, name="fedmlbm", label="FedMLBM"):
    """FedMLB workers, slow momentum on the server."""
