"""What DP-FedAvg and DP-FTRL share: the server sees no more of a round than the noisy mean of clipped updates.

    d = (sum_i d_i min(1, C / |d_i|) + noise) / S,

with the expected cohort size S as the divisor, whoever reports, and no weights: ``aggregation`` has no effect. A round
to which nobody reports adds its noise, too. d takes the place of the updates before any rule of the server sees them
(``receive_updates``), so that whatever a method makes of it costs no further privacy: a class line joins it to any
method whose workers send their update alone. Methods that send more, that ask workers about x_t first, or whose server
follows single workers are refused. The cohort's mean number of local steps counts as public.

What was spent is logged as ``privacy/epsilon``, at ``algorithm.delta``, for a worker with all its data (user-level
privacy).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fl_platform.algorithms.base import Algorithm, Federation, Updates, has_default, state
from fl_platform.algorithms.clipping import clip_factors
from fl_platform.config.options import option
from fl_platform.errors import UserError
from fl_platform.models.flat import Vector
from fl_platform.runs import metrics
from fl_platform.seeding import torch_generator


@dataclass(eq=False)
class PrivateMean(Algorithm):
    """Mix-in: the updates of a round arrive as one, their clipped mean with noise."""

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
    delta: float | None = option(None, "epsilon is logged for it; null: N^-1.1", above=0, below=1)
    clip: float | None = state()  # C
    rounds_spent: int = state(lambda _: 0)

    def accountant_of(self, federation: Federation) -> Any:
        """Return what tells epsilon after a number of rounds."""
        raise NotImplementedError

    def noise(self, dim: int, round: int, source: torch.Generator) -> Vector:
        """Return the noise of a round in units of z C, from the generator of the round or from those of others."""
        raise NotImplementedError

    @property
    def update_noise(self) -> float:
        """z, or the part of it that is the updates' own."""
        return self.noise_multiplier

    def adapt_network(self, network: nn.Module, example: Tensor, num_classes: int) -> None:
        if any(True for _ in network.buffers()):
            raise ValueError("cannot be trained privately: running statistics would leave the workers without noise")

    def prepare(self, federation: Federation) -> None:
        super().prepare(federation)
        self.refuse_what_has_no_noise()
        self.clip = self.clip_norm
        self._diagnostics: dict[str, float] = {}
        self.seed, self.cohort_size = federation.seed, federation.cohort_size
        self.accountant = self.accountant_of(federation)

    def refuse_what_has_no_noise(self) -> None:
        """Raise UserError for a method whose server would see more than the noisy mean."""
        if self.sends:
            raise UserError(
                f"algorithm.name={self.name} sends {', '.join(self.sends)} beside the update, which has no noise"
            )
        if not has_default(self, "survey_local"):
            raise UserError(f"algorithm.name={self.name} asks workers about x_t first, and their answers have no noise")
        if not has_default(self, "begin_round"):
            raise UserError(f"algorithm.name={self.name} follows single workers, of which a private server sees none")

    def receive_updates(self, updates: Updates) -> Updates:
        factors = torch.ones_like(updates.delta[:, 0]) if self.clip is None else clip_factors(updates.delta, self.clip)
        mean = (factors / self.cohort_size) @ updates.delta
        source = torch_generator(self.seed, "privacy", updates.round)
        if self.noise_multiplier > 0 and self.clip is not None:
            noise = self.noise(len(mean), updates.round, source)
            mean = mean + (self.update_noise * self.clip / self.cohort_size * noise).to(mean)
        self.rounds_spent += 1
        self._note(factors)
        self.after_round(factors, source)
        return super().receive_updates(updates.pooled(mean))

    def after_round(self, factors: Tensor, source: torch.Generator) -> None:
        """Take note of how far the updates of a round were clipped."""

    def _note(self, factors: Tensor) -> None:
        spent = self.accountant.epsilon(self.rounds_spent, self.delta or 0.0)
        self._diagnostics = {metrics.EPSILON: spent} if math.isfinite(spent) else {}
        if self.clip is not None:
            self._diagnostics |= {
                metrics.CLIP_NORM: self.clip,
                metrics.CLIPPED_SHARE: float((factors < 1).double().mean()) if len(factors) else 0.0,
            }

    def diagnostics(self) -> dict[str, float]:
        return super().diagnostics() | self._diagnostics
