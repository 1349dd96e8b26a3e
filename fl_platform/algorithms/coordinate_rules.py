"""Coordinate-wise median and trimmed mean: Yin et al., Byzantine-Robust Distributed Learning, 2018.

https://arxiv.org/abs/1803.01498. For every coordinate k, over the S updates d_i of the round:

    median        med_k = the middle of d_1k, ..., d_Sk; the mean of the two middle ones for an even S
    trimmed mean  the mean without the b largest and the b smallest of d_1k, ..., d_Sk, b = floor(trimmed * S)

They stand in for the average: x_{t+1} = x_t - server_lr * rule(d_1, ..., d_S), and for the average within any method
whose server asks the next class in line, as in ``class MedianProx(FedProx, Median, name="median_prox")``.

Departures: the paper aggregates gradients, here updates of several local steps. ``aggregation=samples`` weights what
the trimmed mean keeps, with the weights of the kept workers scaled to sum to 1 in each coordinate; the median has no
weights and ignores them. Nothing trimmed is FedAvg; the paper does not tune beta, which is at least the share of
faulty workers that one wants to withstand. With skewed data, updates differ without any fault, and the median of a
coordinate that only few workers move is near zero.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, Updates
from fl_platform.algorithms.shares import whole_share
from fl_platform.config.options import option
from fl_platform.models.flat import Vector


@dataclass(eq=False)
class Median(Algorithm, name="median", label="Median"):
    """The server takes the median of the updates in every coordinate."""

    equation: ClassVar[str] = r"d = \mathrm{median}_i(d_i)"
    kind: ClassVar[str] = "server"
    group: ClassVar[str] = "robust"

    def server_direction(self, updates: Updates) -> Vector:
        count = len(updates.delta)
        middle = updates.delta.sort(dim=0).values[(count - 1) // 2 : count // 2 + 1]
        return middle.mean(0)


@dataclass(eq=False)
class TrimmedMean(Algorithm, name="trimmed_mean", label="Trimmed mean"):
    """The server averages the updates in every coordinate without the largest and the smallest."""

    equation: ClassVar[str] = r"d = \text{mean of the middle of } d_i"
    kind: ClassVar[str] = "server"
    group: ClassVar[str] = "robust"

    trimmed: float = option(0.2, "beta: share of updates left out at either end", at_least=0, below=0.5)

    def server_direction(self, updates: Updates) -> Vector:
        count = len(updates.delta)
        trimmed = whole_share(self.trimmed, count)
        if trimmed == 0:
            return updates.mean_delta
        values, order = updates.delta.sort(dim=0)
        kept = slice(trimmed, count - trimmed)
        weights = updates.weights[order[kept]]
        return (weights * values[kept]).sum(0) / weights.sum(0)
