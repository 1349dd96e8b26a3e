"""FedRS: Li and Zhan, FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data, KDD 2021.

https://doi.org/10.1145/3447548.3467254. Workers minimise the cross-entropy of logits that are multiplied by alpha
for the classes of which they have no sample, so that these classes' weights are pushed away less. With alpha = 1 it
is FedAvg.
Departures: the authors' code has a factor for every class, alpha + (1 - alpha) n_{i,c} / max_c n_{i,c}, which is the
paper's for absent classes and for the largest; biases are scaled with the logits. The grid is that of the authors' code
(train_lab.py of github.com/lxcnju/FedRepo).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, LocalBatch
from fl_platform.config.options import option


@dataclass(eq=False)
class FedRS(Algorithm, name="fedrs", label="FedRS"):
    """Workers scale down the logits of classes that they lack."""

    group: ClassVar[str] = "worker correction"
    equation: ClassVar[str] = r"\ell = \mathrm{CE}(\alpha_c a_c),\; \alpha_c = \alpha^{[n_{i,c} = 0]}"

    alpha: float = option(0.5, "factor of the logits of absent classes", at_least=0, at_most=1, grid=(0.1, 0.5, 0.9))

    def local_loss(self, batch: LocalBatch) -> Tensor:
        if self.alpha == 1:
            return super().local_loss(batch)
        factors = torch.ones_like(batch.class_counts).masked_fill(batch.class_counts == 0, self.alpha)
        return batch.cross_entropy(batch.logits * factors.unsqueeze(1))
