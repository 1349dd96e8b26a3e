"""DP-FTRL: Kairouz et al., Practical and Private (Deep) Learning without Sampling or Shuffling, ICML 2021.

https://arxiv.org/abs/2103.00039. Updates are clipped to norm C and the server releases their prefix sums, noise being
added along a binary tree of rounds. After t rounds of a tree

    x = x_start - server_lr / S (sum_{s <= t} sum_i d_i min(1, C / |d_i|) + N_t),
    N_t = the sum of one N(0, (z C)^2 I) for every 1 in the binary form of t,

each of which belongs to a node of the tree, a block of 2^k rounds, and is the same in all sums that contain the block.
So the variance of the model's noise grows with the logarithm of t instead of t, without any random sampling of workers.
The direction of a round is the mean of its clipped updates plus (N_t - N_{t-1}) / S: the new node minus those that it
replaces. ``private_mean.py`` has the rest.

A worker may take part once per tree: cohorts are those of ``cohort_sampling=epochs``, in which every worker is asked
once in ceil(N / S) rounds, and a new tree begins with every epoch (the authors' restarts). A worker then changes at
most ceil(log2(ceil(N / S) + 1)) nodes of a tree, by C each; dp-accounting composes the trees. Neighbours: a worker, and
the same worker with updates of zero.

With S = N every tree is one round, and it is DP-FedAvg; z = 0 without a clipping norm is FedAvg. DP-FTRLM has the
momentum of the authors' DP-FTRLM, m <- momentum_decay m + d, which costs nothing.

Departures: momentum goes on where a new tree begins, where the authors begin anew; fixed clipping; no estimator that
reduces the noise of finished nodes. Noise comes from the run's seed, as with DP-FedAvg.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fl_platform.algorithms.accountant import TreeAccountant, TreeRules, rounds_per_epoch
from fl_platform.algorithms.base import Federation
from fl_platform.algorithms.momentum import SlowMomentum
from fl_platform.algorithms.private_mean import PrivateMean
from fl_platform.models.flat import Vector
from fl_platform.seeding import torch_generator


def changed_nodes(step: int) -> tuple[tuple[int, int], list[tuple[int, int]]]:
    """The node that step t = 1, 2, ... of a tree adds to its prefix sum, and those that it replaces.

    A node (k, t) is the one of the 2^k steps that end with t. Those of t - 1 are the 1s of its binary form.
    """
    height = (step & -step).bit_length() - 1
    return (height, step), [(k, step - 2**k) for k in range(height)]


@dataclass(eq=False)
class DpFtrl(TreeRules, PrivateMean, name="dp_ftrl", label="DP-FTRL"):
    """Updates are clipped and noise is added along a tree of rounds; the privacy spent is logged."""

    equation: ClassVar[str] = r"d = \tfrac1S \bigl(\sum_i d_i \min(1, C / |d_i|) + N_t - N_{t-1}\bigr)"
    needs: ClassVar[tuple[str, ...]] = ("model.norm=group|none", "cohort_sampling=epochs")

    def accountant_of(self, federation: Federation) -> TreeAccountant:
        return TreeAccountant(self.noise_multiplier, rounds_per_epoch(federation.num_workers, federation.cohort_size))

    def noise(self, dim: int, round: int, source: torch.Generator) -> Vector:
        """N_t - N_{t-1}, in units of z C; any node can be drawn again, so none is kept."""
        tree, place = divmod(round - 1, self.accountant.rounds_per_tree)
        new, replaced = changed_nodes(place + 1)
        change = self._node(dim, tree, *new)
        for node in replaced:
            change -= self._node(dim, tree, *node)
        return change

    def _node(self, dim: int, tree: int, height: int, end: int) -> Vector:
        source = torch_generator(self.seed, "privacy tree", tree, height, end)
        return torch.randn(dim, generator=source, dtype=torch.float64)


@dataclass(eq=False)
class DpFtrlM(SlowMomentum, DpFtrl, name="dp_ftrlm", label="DP-FTRLM"):
    """DP-FTRL with momentum on the noisy mean, which costs no privacy."""
