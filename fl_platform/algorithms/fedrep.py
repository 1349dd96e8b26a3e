"""FedRep: Collins et al., Exploiting Shared Representations for Personalized Federated Learning, ICML 2021.

https://arxiv.org/abs/2102.07078. As FedPer, but workers first train their own last layers with the base fixed, then
the base with these fixed:

    x_{tau+1} = x_tau - local_lr (g on the head if tau < head_steps, else g on the base).

With personal_layers = 0 and head_steps = 0 it is FedAvg.
Departures: the authors count epochs, ten or so for the head and one for the base; here steps of the round's
``local_steps``. Running statistics of BatchNorm are updated in both phases.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Federation, LocalStep
from fl_platform.algorithms.fedrep_rules import HEAD_STEPS, FedRepRules
from fl_platform.algorithms.personal import PersonalPart, last_layers
from fl_platform.config.options import option
from fl_platform.models.flat import Stack


@dataclass(eq=False)
class FedRep(FedRepRules, PersonalPart, name="fedrep", label="FedRep"):
    """The last layers belong to each worker, which trains them first and the shared layers after."""

    equation: ClassVar[str] = r"x_\tau - \eta_l (g_{head} \text{ if } \tau < \tau_h \text{, else } g_{base})"

    personal_layers: int = option(1, "layers from the end that belong to workers", at_least=0, grid=(1, 2, 3))
    head_steps: int | None = option(
        None, "steps of a round that train them, the others train the base; null: 3, or all but one", at_least=0
    )

    def personal_tensors(self, federation: Federation) -> list[bool]:
        return last_layers(federation, self.personal_layers, "algorithm.personal_layers")

    def local_direction(self, step: LocalStep) -> Stack:
        is_head_step = step.index < (HEAD_STEPS if self.head_steps is None else self.head_steps)
        is_fixed = ~self.is_personal if is_head_step else self.is_personal
        return super().local_direction(step).masked_fill(is_fixed, 0)
