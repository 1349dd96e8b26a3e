"""The dual problem with unit-length anchors and a unit-length vector, and what any solution of it must report."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

EARLY_EXIT = 1e-12
"""Normalised products above minus this count as satisfied: below it a sign is round-off, and solvers chase it."""

EXACT_GRAM = 1e-15
"""Relative error of Gram entries that were accumulated in float64 from exact products."""


class QPError(RuntimeError):
    """No solver met the optimality conditions; the message carries the numbers."""


@dataclass(frozen=True)
class Dual:
    """Problems ``...`` scaled so that tolerances mean the same for tiny and huge vectors.

    An anchor that is zero (or dropped) is replaced by one that is orthogonal to everything and demands nothing.
    """

    gram: Tensor  # (..., C, C), unit diagonal
    linear: Tensor  # (..., C), cosines of vector and anchors minus the margin; 1 for a dropped anchor
    scale: Tensor  # (..., C), |p| / |a_i|: turns multipliers of this problem into those of the original one
    margin: float

    @property
    def satisfied(self) -> Tensor:
        """(...), problems whose vector needs no correction."""
        return (self.linear >= -EARLY_EXIT).all(-1)

    @property
    def finite(self) -> Tensor:
        """(...), problems without NaN or infinity."""
        return torch.isfinite(self.gram.sum((-2, -1)) + self.linear.sum(-1))

    def slack(self, multipliers: Tensor) -> Tensor:
        """(..., C), Qz + b."""
        return self.linear + (self.gram @ multipliers[..., None])[..., 0]

    def residual(self, multipliers: Tensor) -> Tensor:
        """(...), largest |min(z, Qz + b)|: zero exactly at the optimum, in units of cosines."""
        return torch.amax(torch.abs(torch.minimum(multipliers, self.slack(multipliers))), -1)


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Multipliers of the original problems and how good they are, still on the device."""

    multipliers: Tensor  # (..., C)
    active: Tensor  # (...), number of positive multipliers
    residual: Tensor  # (...), normalised violation of the optimality conditions
    norm_ratio: Tensor  # (...), |projected| / |vector|; 1 for a zero vector
    fallbacks: int = 0  # problems left uncorrected because no solver succeeded


def normalise(gram: Tensor, products: Tensor, squared_norm: Tensor, margin: float, drop_threshold: float) -> Dual:
    """Scale anchors and vector to unit length; drop zero anchors and those shorter than a share of the longest."""
    length = torch.sqrt(torch.diagonal(gram, 0, -2, -1))
    dropped = length == 0
    if drop_threshold > 0 and length.shape[-1]:
        dropped = dropped | (length <= drop_threshold * torch.amax(length, -1)[..., None])
    reciprocal = 1.0 / torch.where(dropped, torch.inf, length)
    gram = gram * reciprocal[..., None] * reciprocal[..., None, :]
    gram = torch.where(_identity(gram.shape[-1], gram.device) & torch.isfinite(gram), 1.0, gram)
    norm = torch.sqrt(squared_norm)[..., None]
    is_zero = norm == 0
    cosines = products * reciprocal / torch.where(is_zero, 1.0, norm)
    return Dual(gram, torch.where(dropped | is_zero, 1.0, cosines - margin), norm * reciprocal, margin)


@lru_cache(maxsize=32)
def _identity(count: int, device: torch.device) -> Tensor:
    return torch.eye(count, dtype=torch.bool, device=device)


def report(dual: Dual, multipliers: Tensor) -> dict[str, Tensor]:
    """Apply the early exit, let NaN and infinity through, and measure the result: the fields of a Solution."""
    satisfied = dual.satisfied
    z = torch.where(satisfied[..., None] | (multipliers < 0), 0.0, multipliers)
    z = torch.where(dual.finite[..., None], z, torch.nan)
    slack = dual.slack(z)
    growth = (z * (dual.linear + slack + 2 * dual.margin)).sum(-1)
    violation = torch.abs(torch.minimum(z, slack))
    return {
        "multipliers": torch.where(z == 0, 0.0, z * dual.scale),
        "active": (z != 0).sum(-1),
        "residual": torch.where(satisfied, 0.0, torch.amax(violation, -1)) if z.shape[-1] else growth,
        "norm_ratio": torch.sqrt((1 + growth).clip(0)),
    }
