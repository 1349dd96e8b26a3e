"""FedLC: Zhang et al., Federated Learning with Label Distribution Skew via Logits Calibration, ICML 2022.

https://arxiv.org/abs/2209.00189. Workers minimise the cross-entropy of calibrated logits

    a_c - tau n_{i,c}^{-1/4},

n_{i,c} the number of training samples of class c that worker i has: the fewer, the larger the margin that its
samples have to keep. A class that a worker lacks counts as 1e-8 samples, as in the authors' code: a margin of 100
tau. With tau = 0 it is FedAvg.
Departures: none known. The grid has tau = 0.1, which public code of the method has (approach/fedlogitcal.py of
github.com/bytedance/FedDecorr), and larger ones.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fl_platform.algorithms.base import Algorithm, LocalBatch
from fl_platform.config.options import option

ABSENT = 1e-8
"""Samples that a class has of which the worker has none."""


@dataclass(eq=False)
class FedLC(Algorithm, name="fedlc", label="FedLC"):
    """Workers' logits are calibrated by how many samples of each class they have."""

    group: ClassVar[str] = "worker correction"
    equation: ClassVar[str] = r"\ell = \mathrm{CE}(a_c - \tau\, n_{i,c}^{-1/4})"

    tau: float = option(1.0, "size of the margins", at_least=0, grid=(0.1, 0.5, 1.0))

    def local_loss(self, batch: LocalBatch) -> Tensor:
        if self.tau == 0:
            return super().local_loss(batch)
        margins = self.tau * batch.class_counts.clamp_min(ABSENT) ** -0.25
        return batch.cross_entropy(batch.logits - margins.unsqueeze(1))
