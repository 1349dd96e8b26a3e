"""What ``worker_projection`` compiles: loops over plain arrays, by numba."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fl_platform.kernels.compiler import compiled, vectorised
from fl_platform.qp.dual import EARLY_EXIT
from fl_platform.qp.enumeration import ANCHORS, EQUALLY_GOOD, SMALLEST_PIVOT

Array = np.ndarray[Any, np.dtype[Any]]
Found = tuple[float, float, float, float, float, float]
"""Three multipliers, how many are not zero, residual, norm ratio."""


def project_on_host(columns: Sequence[Tensor], segments: Sequence[tuple[int, int]], margin: float) -> dict[str, Any]:
    """The fields of a Projection for 1 to 4 columns (S, d); the rest is (S, L, ...) in float64."""
    vector = columns[0]
    rows, count = len(vector), len(columns) - 1
    projected = torch.empty_like(vector, memory_format=torch.contiguous_format)
    numbers = np.empty((rows, len(segments), 6))
    edges = np.array([0, *(stop for _, stop in segments)])
    missing = [_zeros(vector.shape[1], vector.dtype)] * (ANCHORS - count)
    for row in range(rows):
        views = [column[row].contiguous().numpy() for column in columns]
        _project(*views, *missing, edges, margin, projected[row].numpy(), numbers[row])
    return {"vectors": projected, **_solution(numbers, count)}


def enumerate_on_host(gram: Tensor, margin: float) -> dict[str, Any]:
    """The fields of a Solution for (S, L, 4, 4) inner products of a vector and three anchors, in float64."""
    numbers = np.empty((*gram.shape[:2], 6))
    _solve_all(gram.contiguous().numpy(), margin, numbers)
    return _solution(numbers, ANCHORS)


def _solution(numbers: Array, count: int) -> dict[str, Any]:
    values = torch.from_numpy(numbers)
    return {
        "multipliers": values[..., :count],
        "active": values[..., 3].long(),
        "residual": values[..., 4],
        "norm_ratio": values[..., 5],
    }


@lru_cache(maxsize=1)
def _zeros(width: int, dtype: torch.dtype) -> Array:
    return np.asarray(torch.zeros(width, dtype=dtype))


@compiled
def _project(
    vector: Array,
    first: Array,
    second: Array,
    third: Array,
    edges: Array,
    margin: float,
    projected: Array,
    numbers: Array,
) -> None:
    for segment in range(len(edges) - 1):
        start, stop = edges[segment], edges[segment + 1]
        v, a, b, c = vector[start:stop], first[start:stop], second[start:stop], third[start:stop]
        found = _solve(products(v, a, b, c), margin)
        for k in range(6):
            numbers[segment, k] = found[k]
        _combine(v, a, b, c, found[:3], projected[start:stop])


@vectorised
def products(v: Array, a: Array, b: Array, c: Array) -> tuple[float, ...]:
    """The upper triangle of the Gram matrix, row by row. Products of float32 are exact in float64."""
    vv = va = vb = vc = aa = ab = ac = bb = bc = cc = 0.0
    for k in range(len(v)):
        x, y, z, w = np.float64(v[k]), np.float64(a[k]), np.float64(b[k]), np.float64(c[k])
        vv += x * x
        va += x * y
        vb += x * z
        vc += x * w
        aa += y * y
        ab += y * z
        ac += y * w
        bb += z * z
        bc += z * w
        cc += w * w
    return vv, va, vb, vc, aa, ab, ac, bb, bc, cc


@vectorised
def _combine(v: Array, a: Array, b: Array, c: Array, weights: tuple[float, float, float], into: Array) -> None:
    """v + x a + y b + z c, rounded once. The vector stands in for anchors that do not count: their values are not read,
    and zero times a number adds nothing, not even a sign."""
    x, y, z = weights
    a, b, c = a if x != 0 else v, b if y != 0 else v, c if z != 0 else v
    for k in range(len(v)):
        into[k] = v[k] + (x * a[k] + y * b[k] + z * c[k])


@compiled
def _solve_all(gram: Array, margin: float, numbers: Array) -> None:
    for row in range(gram.shape[0]):
        for segment in range(gram.shape[1]):
            (vv, va, vb, vc), (_, aa, ab, ac) = gram[row, segment, 0], gram[row, segment, 1]
            bb, bc, cc = gram[row, segment, 2, 2], gram[row, segment, 2, 3], gram[row, segment, 3, 3]
            numbers[row, segment] = _solve((vv, va, vb, vc, aa, ab, ac, bb, bc, cc), margin)


@compiled
def _solve(products: tuple[float, ...], margin: float) -> Found:
    pp, p0, p1, p2, a00, a01, a02, a11, a12, a22 = products
    if not math.isfinite(pp + p0 + p1 + p2 + a00 + a01 + a02 + a11 + a12 + a22):
        return math.nan, math.nan, math.nan, 3.0, math.nan, math.nan
    norm, l0, l1, l2 = math.sqrt(pp), math.sqrt(a00), math.sqrt(a11), math.sqrt(a22)
    if norm == 0:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 1.0
    u0, u1, u2 = 1 / l0 if l0 else 0.0, 1 / l1 if l1 else 0.0, 1 / l2 if l2 else 0.0
    b0 = p0 * u0 / norm - margin if l0 else 1.0  # an anchor of length zero demands nothing
    b1 = p1 * u1 / norm - margin if l1 else 1.0
    b2 = p2 * u2 / norm - margin if l2 else 1.0
    if min(b0, b1, b2) >= -EARLY_EXIT:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 1.0
    q01, q02, q12 = a01 * u0 * u1, a02 * u0 * u2, a12 * u1 * u2

    z0, z1, z2, least = 0.0, 0.0, 0.0, math.inf
    for support in range(8):
        is_regular, c0, c1, c2 = _candidate(support, q01, q02, q12, b0, b1, b2)
        s0, s1, s2 = b0 + c0 + q01 * c1 + q02 * c2, b1 + q01 * c0 + c1 + q12 * c2, b2 + q02 * c0 + q12 * c1 + c2
        violation = -min(c0, c1, c2, s0, s1, s2)
        if is_regular and violation < least:
            z0, z1, z2, least = c0, c1, c2, violation
            if violation <= EQUALLY_GOOD:
                break
    z0, z1, z2 = max(z0, 0.0), max(z1, 0.0), max(z2, 0.0)
    s0, s1, s2 = b0 + z0 + q01 * z1 + q02 * z2, b1 + q01 * z0 + z1 + q12 * z2, b2 + q02 * z0 + q12 * z1 + z2
    growth = z0 * (b0 + s0 + 2 * margin) + z1 * (b1 + s1 + 2 * margin) + z2 * (b2 + s2 + 2 * margin)
    residual = max(abs(min(z0, s0)), abs(min(z1, s1)), abs(min(z2, s2)))
    active = float((z0 != 0) + (z1 != 0) + (z2 != 0))
    return z0 * norm * u0, z1 * norm * u1, z2 * norm * u2, active, residual, math.sqrt(max(1 + growth, 0.0))


@compiled
def _candidate(
    support: int, q01: float, q02: float, q12: float, b0: float, b1: float, b2: float
) -> tuple[bool, float, float, float]:
    """z_A = -Q_AA^-1 b_A of one of eight supports A, small ones first; false if its anchors are dependent."""
    if support == 0:
        return True, 0.0, 0.0, 0.0
    if support == 1:
        return True, -b0, 0.0, 0.0
    if support == 2:
        return True, 0.0, -b1, 0.0
    if support == 3:
        return True, 0.0, 0.0, -b2
    pivot01, pivot02, pivot12 = 1 - q01 * q01, 1 - q02 * q02, 1 - q12 * q12
    if support == 4:
        return pivot01 > SMALLEST_PIVOT, (q01 * b1 - b0) / pivot01, (q01 * b0 - b1) / pivot01, 0.0
    if support == 5:
        return pivot02 > SMALLEST_PIVOT, (q02 * b2 - b0) / pivot02, 0.0, (q02 * b0 - b2) / pivot02
    if support == 6:
        return pivot12 > SMALLEST_PIVOT, 0.0, (q12 * b2 - b1) / pivot12, (q12 * b1 - b2) / pivot12
    below = q12 - q01 * q02
    pivot = pivot02 - below * below / pivot01
    y1 = q01 * b0 - b1
    z2 = (q02 * b0 - b2 - below / pivot01 * y1) / pivot
    z1 = (y1 - below * z2) / pivot01
    return pivot01 > SMALLEST_PIVOT and pivot > SMALLEST_PIVOT, -b0 - q01 * z1 - q02 * z2, z1, z2
