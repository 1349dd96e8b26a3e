"""What ``row_products`` compiles.

A BLAS copies both factors into a layout of its own first: for 12 rows by 100 that is most of its time. Here 4 by 3 rows
at a time are multiplied where they lie, in pieces that stay in the cache.
"""

import numpy as np
import torch
from torch import Tensor

from fl_platform.kernels.compiled_projection import Array
from fl_platform.kernels.compiler import compiled, vectorised

PIECE = 8192
"""Coordinates whose products are summed in float32, eight sums side by side, before they are added in float64."""


def compiled_row_products(rows: Tensor, slots: Tensor, vector: Tensor, start: int, stop: int) -> Tensor:
    """``row_products`` for float32 on a CPU."""
    found = np.zeros((len(slots) + 1, len(rows)))
    if found.size:
        probes = np.append(slots.numpy(), -1)
        _row_products(rows.numpy(), vector.reshape(1, -1).numpy(), probes, start, stop, found)
    return torch.from_numpy(found)


@compiled
def _row_products(rows: Array, vector: Array, probes: Array, start: int, stop: int, found: Array) -> None:
    """Probe -1 is the vector. At the edges a row is multiplied again and the product not used."""
    count, size = found.shape
    for left in range(start, stop, PIECE):
        right = min(left + PIECE, stop)
        for j in range(0, size, 3):
            x = rows[j, left:right]
            y = rows[min(j + 1, size - 1), left:right]
            z = rows[min(j + 2, size - 1), left:right]
            for i in range(0, count, 4):
                a = _probe(rows, vector, probes[i], left, right)
                b = _probe(rows, vector, probes[min(i + 1, count - 1)], left, right)
                c = _probe(rows, vector, probes[min(i + 2, count - 1)], left, right)
                d = _probe(rows, vector, probes[min(i + 3, count - 1)], left, right)
                products = _four_by_three(a, b, c, d, x, y, z)
                for k in range(min(4, count - i)):
                    for n in range(min(3, size - j)):
                        found[i + k, j + n] += products[3 * k + n]


@compiled
def _probe(rows: Array, vector: Array, slot: int, left: int, right: int) -> Array:
    return vector[0, left:right] if slot < 0 else rows[slot, left:right]


@vectorised
def _four_by_three(a: Array, b: Array, c: Array, d: Array, x: Array, y: Array, z: Array) -> tuple[float, ...]:
    zero = a.dtype.type(0)
    ax = ay = az = bx = by = bz = cx = cy = cz = dx = dy = dz = zero
    for k in range(len(a)):
        ax += a[k] * x[k]
        ay += a[k] * y[k]
        az += a[k] * z[k]
        bx += b[k] * x[k]
        by += b[k] * y[k]
        bz += b[k] * z[k]
        cx += c[k] * x[k]
        cy += c[k] * y[k]
        cz += c[k] * z[k]
        dx += d[k] * x[k]
        dy += d[k] * y[k]
        dz += d[k] * z[k]
    return ax, ay, az, bx, by, bz, cx, cy, cz, dx, dy, dz
