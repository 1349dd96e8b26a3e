"""Three anchors: try every support at once. No loop, no branch on values, no wait for the device."""

from functools import lru_cache
from types import ModuleType
from typing import Any

from fl_platform.qp.dual import EXACT_GRAM, Array, Dual, library

ANCHORS = 3
EQUALLY_GOOD = 1e-14
"""Violations below this are round-off; among such candidates the smallest support wins."""


def enumerate_supports(dual: Dual) -> Array:
    """(..., 3) multipliers of the support A with z_A = -Q_AA^-1 b_A that violates the optimality conditions least.

    Singular supports are skipped: by Caratheodory some optimal support has independent anchors. Each system is
    Q_AA padded by the identity, which has a unit diagonal like Q, and is solved by Q = L D L'.
    """
    xp, gram, linear = library(dual.gram), dual.gram, dual.linear
    supports = _supports(xp, gram.device)  # (8, 3)
    first, second, third = supports[:, 0], supports[:, 1], supports[:, 2]
    q01 = gram[..., 0, 1, None] * (first * second)  # (..., 8)
    q02 = gram[..., 0, 2, None] * (first * third)
    q12 = gram[..., 1, 2, None] * (second * third)
    right = -linear[..., None, :] * supports
    r0, r1, r2 = right[..., 0], right[..., 1], right[..., 2]

    pivot1 = 1.0 - q01 * q01
    is_regular = pivot1 > 10 * EXACT_GRAM
    pivot1 = xp.where(is_regular, pivot1, 1.0)
    below = q12 - q01 * q02
    l21 = below / pivot1
    pivot2 = 1.0 - q02 * q02 - l21 * below
    is_regular = is_regular & (pivot2 > 10 * EXACT_GRAM)
    pivot2 = xp.where(is_regular, pivot2, 1.0)

    y1 = r1 - q01 * r0
    z2 = (r2 - q02 * r0 - l21 * y1) / pivot2
    z1 = y1 / pivot1 - l21 * z2
    z0 = r0 - q01 * z1 - q02 * z2
    candidates = xp.stack((z0, z1, z2), -1)  # (..., 8, 3)

    slack = linear[..., None, :] + candidates @ gram
    violation = (-xp.amin(xp.minimum(candidates, slack), -1)).clip(EQUALLY_GOOD)
    best = xp.where(is_regular, violation, xp.inf).argmin(-1)
    candidates = candidates.reshape(-1, len(supports), ANCHORS)
    problems = xp.arange(len(candidates), device=gram.device)
    return candidates[problems, best.reshape(-1)].reshape(linear.shape)


@lru_cache(maxsize=8)
def _supports(xp: ModuleType, device: Any) -> Array:
    """Every subset of three anchors as a row of zeros and ones, small subsets first."""
    codes = sorted(range(2**ANCHORS), key=int.bit_count)
    rows = [[float(code >> k & 1) for k in range(ANCHORS)] for code in codes]
    return xp.asarray(rows, dtype=xp.float64, device=device)
