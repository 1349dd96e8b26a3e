"""Centralised training: one place has the data of all workers. A reference for federated methods, not one of them.

A round is as much work as a federated one: where the cohort's workers would take I_1, ..., I_S steps side by side, as
many steps of SGD follow one another here as these are together, on batches of ``batch_size`` from all workers' training
data, in the order of a permutation that goes on from round to round. Gradients per round are those of FedAvg, and
nothing is sent. ``server_lr`` is 1, others are refused; ``local_momentum`` starts anew in every round, as
it does on workers.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm
from fl_platform.algorithms.reference_rules import ReferenceRules


@dataclass(eq=False)
class Centralised(ReferenceRules, Algorithm, name="centralised", label="Centralised"):
    """SGD on the pooled data of all workers, with as many gradients per round as a cohort takes."""

    group: ClassVar[str] = "reference"
    kind: ClassVar[str] = "baseline"
    downloads: ClassVar[int] = 0
    uploads: ClassVar[int] = 0
    pools_data: ClassVar[bool] = True
