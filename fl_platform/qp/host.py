"""Three anchors on the host: the enumeration of supports in plain floats, ten times faster than arrays of three."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from fl_platform.qp.dual import EARLY_EXIT
from fl_platform.qp.enumeration import EQUALLY_GOOD, SMALLEST_PIVOT

Three = tuple[float, float, float]
Found = tuple[float, float, float, float, float, float]
"""Three multipliers, how many are not zero, residual, norm ratio."""

UNCHANGED: Found = (0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
BAD_NUMBERS: Found = (math.nan, math.nan, math.nan, 3.0, math.nan, math.nan)


def enumerate_on_host(gram: Tensor, margin: float) -> dict[str, Tensor]:
    """The fields of a Solution for (S, L, 4, 4) inner products of a vector and three anchors, in float64."""
    found = [[_solve(one, margin) for one in segments] for segments in gram.tolist()]
    figures = torch.tensor(found, dtype=torch.float64)
    return {
        "multipliers": figures[..., :3],
        "active": figures[..., 3].long(),
        "residual": figures[..., 4],
        "norm_ratio": figures[..., 5],
    }


def _solve(gram: list[list[float]], margin: float) -> Found:
    (pp, p0, p1, p2), (_, a00, a01, a02), (_, _, a11, a12), (_, _, _, a22) = gram
    if not math.isfinite(pp + p0 + p1 + p2 + a00 + a01 + a02 + a11 + a12 + a22):
        return BAD_NUMBERS
    norm, l0, l1, l2 = math.sqrt(pp), math.sqrt(a00), math.sqrt(a11), math.sqrt(a22)
    if norm == 0:
        return UNCHANGED
    u0, u1, u2 = 1 / l0 if l0 else 0.0, 1 / l1 if l1 else 0.0, 1 / l2 if l2 else 0.0
    b0 = p0 * u0 / norm - margin if l0 else 1.0  # an anchor of length zero demands nothing
    b1 = p1 * u1 / norm - margin if l1 else 1.0
    b2 = p2 * u2 / norm - margin if l2 else 1.0
    if min(b0, b1, b2) >= -EARLY_EXIT:
        return UNCHANGED
    q01, q02, q12 = a01 * u0 * u1, a02 * u0 * u2, a12 * u1 * u2

    best, least = (0.0, 0.0, 0.0), math.inf
    for z0, z1, z2 in _candidates(q01, q02, q12, b0, b1, b2):
        violation = -min(
            z0, z1, z2, b0 + z0 + q01 * z1 + q02 * z2, b1 + q01 * z0 + z1 + q12 * z2, b2 + q02 * z0 + q12 * z1 + z2
        )
        if violation < least:
            best, least = (z0, z1, z2), violation
            if violation <= EQUALLY_GOOD:
                break
    z0, z1, z2 = max(best[0], 0.0), max(best[1], 0.0), max(best[2], 0.0)
    s0, s1, s2 = b0 + z0 + q01 * z1 + q02 * z2, b1 + q01 * z0 + z1 + q12 * z2, b2 + q02 * z0 + q12 * z1 + z2
    growth = z0 * (b0 + s0 + 2 * margin) + z1 * (b1 + s1 + 2 * margin) + z2 * (b2 + s2 + 2 * margin)
    residual = max(abs(min(z0, s0)), abs(min(z1, s1)), abs(min(z2, s2)))
    active = (z0 != 0) + (z1 != 0) + (z2 != 0)
    return z0 * norm * u0, z1 * norm * u1, z2 * norm * u2, active, residual, math.sqrt(max(1 + growth, 0.0))


def _candidates(q01: float, q02: float, q12: float, b0: float, b1: float, b2: float) -> Iterator[Three]:
    """z_A = -Q_AA^-1 b_A of every support A with independent anchors, small supports first."""
    yield 0.0, 0.0, 0.0
    yield -b0, 0.0, 0.0
    yield 0.0, -b1, 0.0
    yield 0.0, 0.0, -b2
    pivot01, pivot02, pivot12 = 1 - q01 * q01, 1 - q02 * q02, 1 - q12 * q12
    if pivot01 > SMALLEST_PIVOT:
        yield (q01 * b1 - b0) / pivot01, (q01 * b0 - b1) / pivot01, 0.0
    if pivot02 > SMALLEST_PIVOT:
        yield (q02 * b2 - b0) / pivot02, 0.0, (q02 * b0 - b2) / pivot02
    if pivot12 > SMALLEST_PIVOT:
        yield 0.0, (q12 * b2 - b1) / pivot12, (q12 * b1 - b2) / pivot12
    if pivot01 > SMALLEST_PIVOT:
        below = q12 - q01 * q02
        pivot = pivot02 - below * below / pivot01
        if pivot > SMALLEST_PIVOT:
            y1 = q01 * b0 - b1
            z2 = (q02 * b0 - b2 - below / pivot01 * y1) / pivot
            z1 = (y1 - below * z2) / pivot01
            yield -b0 - q01 * z1 - q02 * z2, z1, z2
