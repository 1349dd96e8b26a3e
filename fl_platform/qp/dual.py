"""The dual problem with unit-length anchors and a unit-length vector, and what any solution of it must report."""

from dataclasses import dataclass

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
    products: Tensor  # (..., C), cosines of vector and anchors
    threshold: Tensor  # (..., C), the cosine each anchor demands: the margin, or -1 for a dropped anchor
    scale: Tensor  # (..., C), |p| / |a_i|: turns multipliers of this problem into those of the original one

    @property
    def linear(self) -> Tensor:
        return self.products - self.threshold

    @property
    def satisfied(self) -> Tensor:
        """(...), problems whose vector needs no correction."""
        return (self.linear >= -EARLY_EXIT).all(-1)

    @property
    def finite(self) -> Tensor:
        """(...), problems without NaN or infinity."""
        return self.gram.isfinite().all(-1).all(-1) & self.products.isfinite().all(-1)

    def residual(self, multipliers: Tensor) -> Tensor:
        """(...), largest |min(z, Qz + b)|: zero exactly at the optimum, in units of cosines."""
        slack = self.linear + (self.gram @ multipliers.unsqueeze(-1)).squeeze(-1)
        return torch.minimum(multipliers, slack).abs().amax(-1)


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
    length = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    shortest = drop_threshold * length.amax(-1, keepdim=True) if length.shape[-1] else length
    dropped = (length == 0) | ((length <= shortest) if drop_threshold > 0 else False)
    reciprocal = torch.where(dropped, 0.0, 1.0 / length)
    norm = squared_norm.sqrt().unsqueeze(-1)
    gram = torch.where(dropped.unsqueeze(-1) | dropped.unsqueeze(-2), 0.0, gram)
    gram = gram * reciprocal.unsqueeze(-1) * reciprocal.unsqueeze(-2)
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    gram = torch.where(identity.bool() & gram.isfinite(), 1.0, gram)
    is_zero = norm == 0
    cosines = torch.where(dropped | is_zero, 0.0, products * reciprocal / torch.where(is_zero, 1.0, norm))
    threshold = torch.where(dropped | is_zero, -1.0, torch.full_like(cosines, margin))
    return Dual(gram, cosines, threshold, norm * reciprocal)


def report(dual: Dual, multipliers: Tensor, fallbacks: int = 0) -> Solution:
    """Apply the early exit, let NaN and infinity through, and measure the result."""
    satisfied, finite = dual.satisfied.unsqueeze(-1), dual.finite.unsqueeze(-1)
    z = torch.where(satisfied, 0.0, multipliers.clamp_min(0))
    z = torch.where(finite, z, torch.nan)
    growth = (z * (2 * dual.products + (dual.gram @ z.unsqueeze(-1)).squeeze(-1))).sum(-1)
    return Solution(
        multipliers=torch.where(z == 0, 0.0, z * dual.scale),
        active=(z != 0).sum(-1),
        residual=torch.where(dual.satisfied, 0.0, dual.residual(z)) if z.shape[-1] else growth,
        norm_ratio=(1 + growth).clamp_min(0).sqrt(),
        fallbacks=fallbacks,
    )
