"""Krum and multi-Krum: Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, 2017.

https://arxiv.org/abs/1703.02757. With S updates of which at most f are faulty, the score of update i is

    s(i) = sum of |d_i - d_j|^2 over the S - f - 2 updates j that are closest to d_i, j != i.

Krum takes the update with the lowest score, multi-Krum the mean of the m updates with the lowest scores; m = S is the
average. x_{t+1} = x_t - server_lr * that. Like the median, they can stand in for the average of other methods.

Departures: the paper aggregates gradients, here updates of several local steps. f = floor(faulty * S), because cohorts
can have different sizes; the paper asks for S > 2f + 2, and where a cohort is too small for that, scores use the one
closest update. The paper does not tune f: it is what one wants to withstand. ``aggregation=samples`` weights the mean
of multi-Krum, scaled to sum to 1; Krum has no mean.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fl_platform.algorithms.base import Algorithm, Updates
from fl_platform.algorithms.krum_rules import MultiKrumRules
from fl_platform.algorithms.shares import whole_share
from fl_platform.config.options import option
from fl_platform.models.flat import Stack, Vector


def squared_distances(stack: Stack) -> Stack:
    """(S, S): |v_i - v_j|^2, one row after another, so that no (S, S, d) block is made."""
    return torch.stack([(stack - row).square().sum(1) for row in stack])


@dataclass(eq=False)
class Krum(Algorithm, name="krum", label="Krum"):
    """The server takes the one update that lies closest to its neighbours."""

    equation: ClassVar[str] = (
        r"d = d_k,\; k = \arg\min_i s(i),\; "
        r"s(i) = \text{sum of } |d_i - d_j|^2 \text{ over the } S - f - 2 \text{ nearest}"
    )
    kind: ClassVar[str] = "server"
    group: ClassVar[str] = "robust"

    faulty: float = option(0.2, "f / S: share of updates taken to be faulty", at_least=0, below=0.5)

    def num_faulty(self, count: int) -> int:
        """f for a cohort of this size."""
        return whole_share(self.faulty, count)

    def num_selected(self, count: int) -> int:
        """m for a cohort of this size."""
        return 1

    def scores(self, stack: Stack) -> Vector:
        """s(i) of every update; the update itself, at distance 0, is not among its neighbours."""
        count = len(stack)
        neighbours = min(max(count - self.num_faulty(count) - 2, 1), count - 1)
        return squared_distances(stack).sort(dim=1).values[:, 1 : 1 + neighbours].sum(1)

    def server_direction(self, updates: Updates) -> Vector:
        count = len(updates.delta)
        selected = self.num_selected(count)
        if selected == count:
            return updates.mean_delta
        chosen = self.scores(updates.delta).argsort(stable=True)[:selected]
        weights = updates.weights[chosen]
        return (weights / weights.sum()) @ updates.delta[chosen]


@dataclass(eq=False)
class MultiKrum(MultiKrumRules, Krum, name="multi_krum", label="Multi-Krum"):
    """The server averages the updates that lie closest to their neighbours."""

    equation: ClassVar[str] = r"d = \text{mean of the } m \text{ with the lowest } s(i)"

    selected: int | None = option(None, "m: updates that are averaged; null: S - f", at_least=1)

    def num_selected(self, count: int) -> int:
        return min(count, self.selected or count - self.num_faulty(count))
