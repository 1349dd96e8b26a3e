"""DP-FedAvg: McMahan et al., Learning Differentially Private Recurrent Language Models, 2018.

https://arxiv.org/abs/1710.06963. Every worker's update is clipped to norm C, and the server adds noise to the sum:

    d = (sum_i d_i min(1, C / |d_i|) + N(0, (z C)^2 I)) / S,   x_{t+1} = x_t - server_lr * d,

as ``private_mean.py`` has it; ``accountant.py`` says which event stands for which sampler.

``clipping=adaptive`` moves C towards the gamma-quantile of the norms: Andrew et al., Differentially Private Learning
with Adaptive Clipping, 2021 (https://arxiv.org/abs/1905.03871). With b_i = 1 where |d_i| <= C and 0 elsewhere,

    b = (sum_i b_i + N(0, sigma_b^2)) / S,   C <- C exp(-clip_rate (b - gamma)),

and the updates have noise z_d = (z^-2 - (2 sigma_b)^-2)^(-1/2) instead of z, so that both together cost what z does.

z = 0 without a clipping norm is FedAvg. DP-FedAvgM has slow momentum on d, which costs nothing.

Departures: equal weights instead of McMahan's min(n_i / w, 1); sigma_b is at least z, where Andrew et al. have S / 20
for cohorts of hundreds. Noise comes from the run's seed, so that a run can be repeated: that is a simulation of the
method, in which whoever knows the seed can subtract the noise. Logged losses, norms and cohorts are not private either.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fl_platform.algorithms.accountant import AMPLIFICATIONS, Accountant, PrivacyRules
from fl_platform.algorithms.base import Federation
from fl_platform.algorithms.momentum import SlowMomentum
from fl_platform.algorithms.private_mean import PrivateMean
from fl_platform.config.options import option
from fl_platform.models.flat import Vector


@dataclass(eq=False)
class DpFedAvg(PrivacyRules, PrivateMean, name="dp_fedavg", label="DP-FedAvg"):
    """Updates are clipped and the server adds noise; the privacy spent is logged."""

    equation: ClassVar[str] = r"d = \tfrac1S \bigl(\sum_i d_i \min(1, C / |d_i|) + N(0, z^2 C^2)\bigr)"

    clipping: str = option("fixed", "whether C stays or follows a quantile of the norms", choices=("fixed", "adaptive"))
    clip_quantile: float = option(
        0.5, "gamma: share of norms below C", at_least=0, at_most=1, when=("algorithm.clipping", "adaptive")
    )
    clip_rate: float = option(0.2, "eta_C: how fast C adapts", above=0, when=("algorithm.clipping", "adaptive"))
    count_noise: float | None = option(
        None,
        "sigma_b: noise of the number of clipped updates; null: the larger of S / 20 and z",
        above=0,
        when=("algorithm.clipping", "adaptive"),
    )
    amplification: str | None = option(
        None,
        "what the accountant may assume of the sampler; null: what it gives",
        choices=AMPLIFICATIONS,
    )

    def accountant_of(self, federation: Federation) -> Accountant:
        return Accountant(
            self.noise_multiplier, federation.num_workers, federation.cohort_size, str(self.amplification)
        )

    def noise(self, dim: int, round: int, source: torch.Generator) -> Vector:
        return torch.randn(dim, generator=source, dtype=torch.float64)

    @property
    def update_noise(self) -> float:
        """z_d: the noise of the updates in units of C."""
        z = self.noise_multiplier
        if z == 0 or self.clipping == "fixed":
            return z
        assert self.count_noise is not None
        return math.sqrt(1 / (z**-2 - (2 * self.count_noise) ** -2))

    def after_round(self, factors: Tensor, source: torch.Generator) -> None:
        """C <- C exp(-clip_rate (b - gamma)) where it adapts."""
        if self.clipping == "fixed":
            return
        assert self.clip is not None
        assert self.count_noise is not None
        noise = torch.randn((), generator=source, dtype=torch.float64).item() if self.noise_multiplier > 0 else 0.0
        unclipped = float((factors >= 1).sum()) + self.count_noise * noise
        self.clip *= math.exp(-self.clip_rate * (unclipped / self.cohort_size - self.clip_quantile))


@dataclass(eq=False)
class DpFedAvgM(SlowMomentum, DpFedAvg, name="dp_fedavgm", label="DP-FedAvgM"):
    """DP-FedAvg with slow momentum on the noisy mean, which costs no privacy."""
