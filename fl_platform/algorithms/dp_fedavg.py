"""DP-FedAvg: McMahan et al., Learning Differentially Private Recurrent Language Models, 2018.

https://arxiv.org/abs/1710.06963. Every worker's update is clipped to norm C, and the server adds noise to the sum:

    d = (sum_i d_i min(1, C / |d_i|) + N(0, (z C)^2 I)) / S,   x_{t+1} = x_t - server_lr * d

with the expected cohort size S as the divisor, whoever reports, and no weights: ``aggregation`` has no effect. A round
to which nobody reports adds its noise, too. What this costs is logged as ``privacy/epsilon``, at ``algorithm.delta``,
for a worker with all its data (user-level privacy); ``accountant.py`` says which event stands for which sampler.

``clipping=adaptive`` moves C towards the gamma-quantile of the norms: Andrew et al., Differentially Private Learning
with Adaptive Clipping, 2021 (https://arxiv.org/abs/1905.03871). With b_i = 1 where |d_i| <= C and 0 elsewhere,

    b = (sum_i b_i + N(0, sigma_b^2)) / S,   C <- C exp(-clip_rate (b - gamma)),

and the updates have noise z_d = (z^-2 - (2 sigma_b)^-2)^(-1/2) instead of z, so that both together cost what z does.

z = 0 without a clipping norm is FedAvg. What the server does with d afterwards costs nothing: DP-FedAvgM has slow
momentum on it, and this class can take the place of the average in methods whose workers send their update alone.

Departures: equal weights instead of McMahan's min(n_i / w, 1); sigma_b is at least z, where Andrew et al. have S / 20
for cohorts of hundreds. Noise comes from the run's seed, so that a run can be repeated: that is a simulation of the
method, in which whoever knows the seed can subtract the noise. Logged losses, norms and cohorts are not private either.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn

from fl_platform.algorithms.accountant import AMPLIFICATIONS, Accountant, PrivacyRules
from fl_platform.algorithms.base import Algorithm, Federation, Updates, state
from fl_platform.algorithms.clipping import clip_factors
from fl_platform.algorithms.momentum import SlowMomentum
from fl_platform.config.options import option
from fl_platform.errors import UserError
from fl_platform.models.flat import Vector
from fl_platform.runs import metrics
from fl_platform.seeding import torch_generator


@dataclass(eq=False)
class DpFedAvg(PrivacyRules, Algorithm, name="dp_fedavg", label="DP-FedAvg"):
    """Updates are clipped and the server adds noise; the privacy spent is logged."""

    kind: ClassVar[str] = "server"
    group: ClassVar[str] = "private"
    needs: ClassVar[tuple[str, ...]] = ("model.norm=group|none",)
    steps_alone: ClassVar[bool] = True

    noise_multiplier: float = option(
        1.0, "z: standard deviation of the noise in units of the clipping norm", at_least=0
    )
    clip_norm: float | None = option(
        1.0, "C, the first one if it adapts; null: no clipping, only without noise", above=0
    )
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
    delta: float | None = option(None, "epsilon is logged for it; null: N^-1.1", above=0, below=1)
    amplification: str | None = option(
        None,
        "what the accountant may assume of the sampler; null: what it gives",
        choices=AMPLIFICATIONS,
    )
    clip: float | None = state()  # C
    rounds_spent: int = state(lambda _: 0)

    def adapt_network(self, network: nn.Module, example: Tensor, num_classes: int) -> None:
        if any(True for _ in network.buffers()):
            raise ValueError("cannot be trained privately: running statistics would leave the workers without noise")

    def prepare(self, federation: Federation) -> None:
        super().prepare(federation)
        if self.sends:
            raise UserError(
                f"algorithm.name={self.name} sends {', '.join(self.sends)} beside the update, which has no noise"
            )
        self.clip = self.clip_norm
        self._figures: dict[str, float] = {}
        self.seed, self.cohort_size = federation.seed, federation.cohort_size
        self.accountant = Accountant(
            self.noise_multiplier, federation.num_workers, federation.cohort_size, str(self.amplification)
        )

    @cached_property
    def update_noise(self) -> float:
        """z_d: the noise of the updates in units of C."""
        z = self.noise_multiplier
        if z == 0 or self.clipping == "fixed":
            return z
        assert self.count_noise is not None
        return math.sqrt(1 / (z**-2 - (2 * self.count_noise) ** -2))

    def server_direction(self, updates: Updates) -> Vector:
        """The mean of clipped updates with noise; it replaces that of the next class in line."""
        factors = torch.ones_like(updates.delta[:, 0]) if self.clip is None else clip_factors(updates.delta, self.clip)
        direction = (factors / self.cohort_size) @ updates.delta
        source = torch_generator(self.seed, "privacy", updates.round)
        if self.noise_multiplier > 0 and self.clip is not None:
            noise = torch.randn(len(direction), generator=source, dtype=torch.float64)
            direction = direction + (self.update_noise * self.clip / self.cohort_size * noise).to(direction)
        self.rounds_spent += 1
        self._note(factors)
        if self.clipping == "adaptive":
            self._adapt(factors, source)
        return direction

    def _note(self, factors: Tensor) -> None:
        spent = self.accountant.epsilon(self.rounds_spent, self.delta or 0.0)
        self._figures = {metrics.EPSILON: spent} if math.isfinite(spent) else {}
        if self.clip is not None:
            self._figures |= {
                metrics.CLIP_NORM: self.clip,
                metrics.CLIPPED_SHARE: float((factors < 1).double().mean()) if len(factors) else 0.0,
            }

    def _adapt(self, factors: Tensor, source: torch.Generator) -> None:
        """C <- C exp(-clip_rate (b - gamma))."""
        assert self.clip is not None
        assert self.count_noise is not None
        noise = torch.randn((), generator=source, dtype=torch.float64).item() if self.noise_multiplier > 0 else 0.0
        unclipped = float((factors >= 1).sum()) + self.count_noise * noise
        self.clip *= math.exp(-self.clip_rate * (unclipped / self.cohort_size - self.clip_quantile))

    def diagnostics(self) -> dict[str, float]:
        return super().diagnostics() | self._figures


@dataclass(eq=False)
class DpFedAvgM(SlowMomentum, DpFedAvg, name="dp_fedavgm", label="DP-FedAvgM"):
    """DP-FedAvg with slow momentum on the noisy mean, which costs no privacy."""
