"""The dual problem with unit-length anchors and a unit-length vector, and what any solution of it must report.

The formulas are written once, in what numpy and torch have in common: torch does not wait for an accelerator, and
on the host numpy spends a fraction of torch's time on arrays of a few numbers.
"""

from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = Any  # np.ndarray[float64] or Tensor: what a caller gives, it gets

EARLY_EXIT = 1e-12
"""Normalised products above minus this count as satisfied: below it a sign is round-off, and solvers chase it."""

EXACT_GRAM = 1e-15
"""Relative error of Gram entries that were accumulated in float64 from exact products."""


class QPError(RuntimeError):
    """No solver met the optimality conditions; the message carries the numbers."""


def library(array: Array) -> ModuleType:
    """numpy or torch, whichever the array belongs to."""
    return torch if isinstance(array, Tensor) else np


@dataclass(frozen=True)
class Dual:
    """Problems ``...`` scaled so that tolerances mean the same for tiny and huge vectors.

    An anchor that is zero (or dropped) is replaced by one that is orthogonal to everything and demands nothing.
    """

    gram: Array  # (..., C, C), unit diagonal
    linear: Array  # (..., C), cosines of vector and anchors minus the margin; 1 for a dropped anchor
    scale: Array  # (..., C), |p| / |a_i|: turns multipliers of this problem into those of the original one
    margin: float

    @property
    def satisfied(self) -> Array:
        """(...), problems whose vector needs no correction."""
        return (self.linear >= -EARLY_EXIT).all(-1)

    @property
    def finite(self) -> Array:
        """(...), problems without NaN or infinity."""
        isfinite = library(self.gram).isfinite
        return isfinite(self.gram).all(-1).all(-1) & isfinite(self.linear).all(-1)

    def slack(self, multipliers: Array) -> Array:
        """(..., C), Qz + b."""
        return self.linear + (self.gram @ multipliers[..., None])[..., 0]

    def residual(self, multipliers: Array) -> Array:
        """(...), largest |min(z, Qz + b)|: zero exactly at the optimum, in units of cosines."""
        xp = library(self.gram)
        return xp.amax(xp.abs(xp.minimum(multipliers, self.slack(multipliers))), -1)


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Multipliers of the original problems and how good they are, still on the device."""

    multipliers: Tensor  # (..., C)
    active: Tensor  # (...), number of positive multipliers
    residual: Tensor  # (...), normalised violation of the optimality conditions
    norm_ratio: Tensor  # (...), |projected| / |vector|; 1 for a zero vector
    fallbacks: int = 0  # problems left uncorrected because no solver succeeded


def normalise(gram: Array, products: Array, squared_norm: Array, margin: float, drop_threshold: float) -> Dual:
    """Scale anchors and vector to unit length; drop zero anchors and those shorter than a share of the longest."""
    xp = library(gram)
    length = xp.sqrt(xp.diagonal(gram, 0, -2, -1))
    dropped = length == 0
    if drop_threshold > 0 and length.shape[-1]:
        dropped = dropped | (length <= drop_threshold * xp.amax(length, -1)[..., None])
    reciprocal = 1.0 / xp.where(dropped, xp.inf, length)
    gram = gram * reciprocal[..., None] * reciprocal[..., None, :]
    gram = xp.where(_identity(xp, gram.shape[-1], gram.device) & xp.isfinite(gram), 1.0, gram)
    norm = xp.sqrt(squared_norm)[..., None]
    is_zero = norm == 0
    cosines = products * reciprocal / xp.where(is_zero, 1.0, norm)
    return Dual(gram, xp.where(dropped | is_zero, 1.0, cosines - margin), norm * reciprocal, margin)


@lru_cache(maxsize=32)
def _identity(xp: ModuleType, count: int, device: Any) -> Array:
    return xp.eye(count, dtype=xp.bool, device=device)


def report(dual: Dual, multipliers: Array) -> dict[str, Array]:
    """Apply the early exit, let NaN and infinity through, and measure the result: the fields of a Solution."""
    xp = library(multipliers)
    satisfied = dual.satisfied
    z = xp.where(satisfied[..., None], 0.0, multipliers.clip(0))
    z = xp.where(dual.finite[..., None], z, xp.nan)
    slack = dual.slack(z)
    growth = (z * (dual.linear + slack + 2 * dual.margin)).sum(-1)
    violation = xp.abs(xp.minimum(z, slack))
    return {
        "multipliers": xp.where(z == 0, 0.0, z * dual.scale),
        "active": (z != 0).sum(-1),
        "residual": xp.where(satisfied, 0.0, xp.amax(violation, -1)) if z.shape[-1] else growth,
        "norm_ratio": xp.sqrt((1 + growth).clip(0)),
    }
