"""What ``worker_projection`` compiles: the projection of a vector by at most three anchors."""

import math
from typing import Any

import numpy as np

from fl_platform.kernels.primitives import contracted, doubles, fma, inlined, integers, pointer, reordered
from fl_platform.kernels.worker_projection import FOUND
from fl_platform.qp.dual import EARLY_EXIT
from fl_platform.qp.enumeration import EQUALLY_GOOD, SMALLEST_PIVOT

Found = tuple[float, float, float, float, float, float]
"""Three multipliers, how many are not zero, residual, norm ratio."""


def project_float32(
    columns: int,
    anchors: int,
    rows: int,
    width: int,
    edges: int,
    segments: int,
    projected: int,
    found: int,
    margin: float,
) -> None:
    """Project rows of float32 numbers.

    ``columns`` has the addresses of the vectors and of their anchors, up to three; ``edges`` the segments' ends, from 0
    on. ``found`` takes the numbers of ``Found`` for every row and segment.
    """
    _project(columns, anchors, rows, width, edges, segments, projected, found, margin, 4, np.float32(0))


def step_float32(
    columns: int,
    gradients: int,
    origin: int,
    width: int,
    edges: int,
    segments: int,
    following: int,
    found: int,
    margin: float,
    rate: float,
) -> None:
    """Write x - rate p for the projection p of one vector, which is not written itself.

    ``columns`` has the addresses of the vector, of one or two gradients that are anchors, and of x. Where there is an
    ``origin``, the way from there to x is one more anchor, the last. All has the bits of ``project_float32`` and of
    steps one after another.
    """
    places, ends, zero = integers(columns), integers(edges), np.float32(0)
    for segment in range(segments):
        offset, count = 4 * ends[segment], ends[segment + 1] - ends[segment]
        v, a = pointer(places[0] + offset, zero), pointer(places[1] + offset, zero)
        b = pointer(places[2 if gradients > 1 else 0] + offset, zero)  # the vector stands in for what there is not
        x = pointer(places[1 + gradients] + offset, zero)
        start = pointer((origin if origin else places[1 + gradients]) + offset, zero)
        vv, va, vb, vc, aa, ab, ac, bb, bc, cc = _products(v, a, b, x, start, True, count)
        if gradients > 1 and origin:
            numbers = _solve((vv, va, vb, vc, aa, ab, ac, bb, bc, cc), margin)
        elif gradients > 1:
            numbers = _solve((vv, va, vb, 0.0, aa, ab, 0.0, bb, 0.0, 0.0), margin)
        else:
            numbers = _solve((vv, va, vc, 0.0, aa, ac, 0.0, cc, 0.0, 0.0), margin)
        y, z = (numbers[1], numbers[2]) if gradients > 1 else (0.0, numbers[1])
        _take(v, a, b, x, start, numbers[0], y, z, rate, pointer(following + offset, zero), count)
        _keep(numbers, found + 8 * FOUND * segment)


def project_float64(
    columns: int,
    anchors: int,
    rows: int,
    width: int,
    edges: int,
    segments: int,
    projected: int,
    found: int,
    margin: float,
) -> None:
    """``project_float32`` for float64 numbers."""
    _project(columns, anchors, rows, width, edges, segments, projected, found, margin, 8, np.float64(0))


def solve_all(grams: int, count: int, found: int, margin: float) -> None:
    """Solve problems of three anchors, given 4 x 4 inner products of each vector and its anchors."""
    for number in range(count):
        g = doubles(grams + 8 * 16 * number)
        numbers = _solve((g[0], g[1], g[2], g[3], g[5], g[6], g[7], g[10], g[11], g[15]), margin)
        _keep(numbers, found + 8 * FOUND * number)


@inlined
def _project(
    columns: int,
    anchors: int,
    rows: int,
    width: int,
    edges: int,
    segments: int,
    projected: int,
    found: int,
    margin: float,
    size: int,
    like: Any,
) -> None:
    places, ends = integers(columns), integers(edges)
    for row in range(rows):
        for segment in range(segments):
            start, count = ends[segment], ends[segment + 1] - ends[segment]
            offset = size * (row * width + start)
            v = pointer(places[0] + offset, like)
            a = pointer(places[min(1, anchors)] + offset, like)  # the vector stands in for anchors that there are not
            b = pointer(places[2 if anchors > 1 else 0] + offset, like)
            c = pointer(places[3 if anchors > 2 else 0] + offset, like)
            numbers = _solve(_only(_products(v, a, b, c, v, False, count), anchors), margin)
            _combine(v, a, b, c, numbers[0], numbers[1], numbers[2], pointer(projected + offset, like), count)
            _keep(numbers, found + 8 * FOUND * (row * segments + segment))


@inlined
def _keep(numbers: Found, place: int) -> None:
    kept = doubles(place)
    kept[0], kept[1], kept[2], kept[3], kept[4], kept[5] = numbers


@reordered
def _products(v: Any, a: Any, b: Any, c: Any, origin: Any, is_moved: bool, count: int) -> tuple[float, ...]:
    """The upper triangle of the Gram matrix of v, a, b and c, or c - origin, row by row.

    Products of float32 are exact in float64.
    """
    vv = va = vb = vc = aa = ab = ac = bb = bc = cc = 0.0
    for k in range(count):
        x, y, z = np.float64(v[k]), np.float64(a[k]), np.float64(b[k])
        w = np.float64(c[k] - origin[k]) if is_moved else np.float64(c[k])
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


@inlined
def _only(products: tuple[float, ...], anchors: int) -> tuple[float, ...]:
    """The products with zero for anchors that there are not."""
    vv, va, vb, vc, aa, ab, ac, bb, bc, cc = products
    if anchors < 3:
        vc = ac = bc = cc = 0.0
    if anchors < 2:
        vb = ab = bb = 0.0
    if anchors < 1:
        va = aa = 0.0
    return vv, va, vb, vc, aa, ab, ac, bb, bc, cc


@contracted
def _combine(v: Any, a: Any, b: Any, c: Any, x: float, y: float, z: float, into: Any, count: int) -> None:
    """v + x a + y b + z c, rounded once. The vector stands in for anchors that do not count: their values are not read,
    and zero times a number adds nothing, not even a sign."""
    if x == 0:
        a = v
    if y == 0:
        b = v
    if z == 0:
        c = v
    for k in range(count):
        into[k] = ((v[k] + x * a[k]) + y * b[k]) + z * c[k]


@contracted
def _take(
    v: Any, a: Any, b: Any, c: Any, origin: Any, x: float, y: float, z: float, rate: float, into: Any, count: int
) -> None:
    """c - rate (v + x a + y b + z (c - origin)), with the roundings of ``_combine`` and of a step."""
    factor, start = -np.float32(rate), c
    if z == 0:
        start = origin = v
    if x == 0 and y == 0:  # the drift alone opposes nearly every gradient
        for k in range(count):
            into[k] = fma(factor, np.float32(v[k] + z * (start[k] - origin[k])), c[k])
        return
    if x == 0:
        a = v
    if y == 0:
        b = v
    for k in range(count):
        projected = np.float32(((v[k] + x * a[k]) + y * b[k]) + z * (start[k] - origin[k]))
        into[k] = fma(factor, projected, c[k])


@inlined
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


@inlined
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
