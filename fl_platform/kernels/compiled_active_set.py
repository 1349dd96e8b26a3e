"""What ``many_anchors`` compiles: block steps of the active-set method (``qp/active_set.py``), where they are enough.

Anchors come as their Gram matrix; all numbers are float64. A problem is left alone, and NaN written for its norm ratio,
where a number is not finite, candidates are dependent to within the error of the Gram entries, or block steps do not
end at an optimum that the tolerance admits.
"""

import math
from typing import Any

from fl_platform.kernels.many_anchors import MEASURES
from fl_platform.kernels.primitives import doubles, inlined, integers, reordered
from fl_platform.qp.active_set import BLOCK_STEPS, NOISE, VIOLATED
from fl_platform.qp.dual import EARLY_EXIT


def solve(
    grams: int,
    products: int,
    squares: int,
    tables: int,
    problems: int,
    count: int,
    found: int,
    work: int,
    margin: float,
    drop_threshold: float,
) -> None:
    """Solve problems of ``count`` anchors.

    ``tables`` has the relative error of each problem's Gram entries, and its tolerance. ``found`` takes a problem's
    multipliers, how many are not zero, residual and norm ratio. The working memory holds two matrices and ``VECTORS``.
    """
    matrix, row = 8 * count * count, 8 * count
    q, factor, first = doubles(work), doubles(work + matrix), work + 2 * matrix
    reciprocal, linear, slack = doubles(first), doubles(first + row), doubles(first + 2 * row)
    values, chosen = doubles(first + 3 * row), integers(first + 4 * row)
    for number in range(problems):
        resolution, tolerance = doubles(tables)[2 * number], doubles(tables)[2 * number + 1]
        gram, vector = doubles(grams + 8 * count * count * number), doubles(products + 8 * count * number)
        length = math.sqrt(doubles(squares)[number])
        place = found + 8 * (count + MEASURES) * number
        z, measures = doubles(place), doubles(place + 8 * count)
        measures[2] = math.nan
        if not _normalise(gram, vector, length, count, margin, drop_threshold, q, reciprocal, linear):
            continue
        if not _block_steps(q, linear, resolution, count, z, slack, values, chosen, factor):
            continue
        active, size, residual, growth = 0.0, 0.0, 0.0, 0.0
        for i in range(count):
            active += z[i] != 0
            size += z[i]
            residual = max(residual, abs(min(z[i], slack[i])))
            growth += z[i] * (linear[i] + slack[i] + 2 * margin)
        if not (active == 0 or residual <= tolerance * math.sqrt(max(1.0, size))):
            continue
        for i in range(count):
            if z[i] != 0:
                z[i] *= length * reciprocal[i]
        measures[0], measures[1] = active, residual if active else 0.0
        measures[2] = math.sqrt(max(1 + growth, 0.0))


@inlined
def _normalise(
    gram: Any,
    products: Any,
    length: float,
    count: int,
    margin: float,
    drop_threshold: float,
    q: Any,
    reciprocal: Any,
    linear: Any,
) -> bool:
    """Scale anchors and vector to length 1, as ``qp.dual.normalise`` does; false for what is not finite."""
    longest, total = 0.0, 0.0
    for i in range(count):
        longest = max(longest, gram[i * (count + 1)])
    longest = math.sqrt(longest)
    for i in range(count):
        own = math.sqrt(gram[i * (count + 1)])
        is_dropped = own <= drop_threshold * longest  # which holds for an anchor of length zero
        reciprocal[i] = 0.0 if is_dropped else 1 / own
        cosine = products[i] * reciprocal[i] / (length if length else 1.0)
        linear[i] = 1.0 if is_dropped or length == 0 else cosine - margin
        total += linear[i]
    for i in range(count):
        for j in range(count):
            k = i * count + j
            q[k] = gram[k] * reciprocal[i] * reciprocal[j]
            total += q[k]
        q[i * (count + 1)] = 1.0
    return math.isfinite(total)


@inlined
def _block_steps(
    q: Any,
    linear: Any,
    resolution: float,
    count: int,
    z: Any,
    slack: Any,
    values: Any,
    chosen: Any,
    factor: Any,
) -> bool:
    """Find multipliers and slacks; false where that takes more than block steps."""
    least, objective = 1.0, 0.0
    for i in range(count):
        z[i], slack[i] = 0.0, linear[i]
        least = min(least, linear[i])
    if least >= -EARLY_EXIT:
        return True
    for _ in range(BLOCK_STEPS):
        number, is_violated = 0, False
        for i in range(count):
            asks = z[i] == 0 and slack[i] < -VIOLATED
            is_violated |= asks
            if asks or z[i] != 0:
                chosen[number] = i
                number += 1
        if not is_violated:
            return True
        number = _best_within(q, linear, NOISE * resolution * number, count, chosen, number, values, factor)
        improved = 0.0
        for k in range(number):
            improved += linear[chosen[k]] * values[k]
        if not improved < objective - VIOLATED:
            return False
        objective = improved
        for i in range(count):
            z[i] = 0.0
        for k in range(number):
            z[chosen[k]] = values[k]
        for i in range(count):
            slack[i] = linear[i] + _product(q, i * count, z, 0, count)
    return False


@inlined
def _best_within(
    q: Any, linear: Any, tolerance: float, count: int, chosen: Any, number: int, values: Any, factor: Any
) -> int:
    """Solve for the chosen anchors, discard those whose multiplier is not positive, repeat; 0 if some are dependent."""
    while number:
        if not _solve(q, linear, tolerance, count, chosen, number, values, factor):
            return 0
        positive = 0
        for k in range(number):
            if values[k] > 0:
                chosen[positive] = chosen[k]
                positive += 1
        if positive == number:
            break
        number = positive
    return number


@inlined
def _solve(
    q: Any, linear: Any, tolerance: float, count: int, chosen: Any, number: int, values: Any, factor: Any
) -> bool:
    """-Q_AA^-1 b_A by a Cholesky factorisation; false if a pivot is as small as its error may be."""
    for i in range(number):
        row, line = chosen[i] * count, i * count
        for j in range(i):
            inner = _product(factor, line, factor, j * count, j)
            factor[line + j] = (q[row + chosen[j]] - inner) / factor[j * count + j]
        pivot = 1.0 - _product(factor, line, factor, line, i)
        if not pivot > tolerance:
            return False
        factor[line + i] = math.sqrt(pivot)
        values[i] = (-linear[chosen[i]] - _product(factor, line, values, 0, i)) / factor[line + i]
    for i in range(number - 1, -1, -1):
        line = i * count
        values[i] /= factor[line + i]
        for j in range(i):
            values[j] -= factor[line + j] * values[i]
    return True


@reordered
def _product(x: Any, first: int, y: Any, start: int, count: int) -> float:
    total = 0.0
    for k in range(count):
        total += x[first + k] * y[start + k]
    return total
