"""FedDecorr: Shi et al., Understanding and Mitigating Dimensional Collapse in Federated Learning, ICLR 2023.

https://arxiv.org/abs/2210.00226. Workers minimise CE + beta |K|_F^2 / F^2, where K is the correlation matrix over
the batch of the F numbers that enter the classifier. With beta = 0 it is FedAvg.
Departures: the paper's formula; the authors' code leaves out the diagonal of K and divides by the batch size B in
place of its square, so that its beta = 0.1 is about beta = 0.1 B here. A number that is constant over the batch
correlates with none (1e-8 is added to each variance). The authors' scripts have beta = 0.1
(github.com/bytedance/FedDecorr); its neighbours in the grid are ours.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, LocalBatch
from fl_platform.config.options import option
from fl_platform.errors import UserError


@dataclass(eq=False)
class FedDecorr(Algorithm, name="feddecorr", label="FedDecorr"):
    """Workers keep the numbers of their representation uncorrelated, so that it does not collapse."""

    group: ClassVar[str] = "worker correction"
    equation: ClassVar[str] = r"\ell = \mathrm{CE} + \beta\, |\mathrm{corr}(z)|_F^2 / F^2"

    beta: float = option(0.1, "weight of the correlations", at_least=0, grid=(0.05, 0.1, 0.5))

    def local_loss(self, batch: LocalBatch) -> Tensor:
        loss = super().local_loss(batch)
        if self.beta == 0:
            return loss
        if batch.features is None:
            raise UserError(f"algorithm.name={self.name} needs a model with a linear layer, whose input it takes")
        return loss + self.beta * correlation(batch.features.flatten(2), batch.weights)


def correlation(features: Tensor, weights: Tensor | None) -> Tensor:
    """(S, B, F) -> (S,): the mean square of the correlations of F numbers; weights (S, B) leave padding out."""
    if weights is None:
        weights = features.new_full(features.shape[:2], 1 / features.shape[1])
    rows = weights.unsqueeze(-1)
    centred = features - (rows * features).sum(1, keepdim=True)
    variance = (rows * centred.square()).sum(1, keepdim=True)
    scaled = centred / torch.sqrt(variance + 1e-8)
    matrix = scaled.transpose(1, 2) @ (rows * scaled)
    return matrix.square().mean((1, 2))
