"""Three anchors: try every support at once. No loop, no branch on values, no wait for the device."""

from functools import lru_cache

import torch
from torch import Tensor

from fl_platform.qp.dual import EXACT_GRAM, Dual

ANCHORS = 3
EQUALLY_GOOD = 1e-14
"""Violations below this are round-off; among such candidates the smallest support wins."""
SMALLEST_PIVOT = 10 * EXACT_GRAM


def enumerate_supports(dual: Dual) -> Tensor:
    """(..., 3) multipliers of the support A with z_A = -Q_AA^-1 b_A that violates the optimality conditions least.

    Singular supports are skipped: by Caratheodory some optimal support has independent anchors. Each system is
    Q_AA padded by the identity, which has a unit diagonal like Q, and is solved by Q = L D L'; what a singular one
    gives is not looked at.
    """
    gram, linear = dual.gram, dual.linear
    supports, pairs = _supports(gram.device)
    # one by one: an index of Python numbers would be copied to the device, and the host would wait for it
    q = torch.stack((gram[..., 0, 1], gram[..., 0, 2], gram[..., 1, 2]), -1)[..., None, :] * pairs  # (..., 8, 3)
    q01, q02, q12 = q[..., 0], q[..., 1], q[..., 2]
    right = -linear[..., None, :] * supports
    r0, r1, r2 = right[..., 0], right[..., 1], right[..., 2]

    pivot1 = 1.0 - q01 * q01
    below = q12 - q01 * q02
    l21 = below / pivot1
    pivot2 = 1.0 - q02 * q02 - l21 * below
    y1 = r1 - q01 * r0
    z2 = (r2 - q02 * r0 - l21 * y1) / pivot2
    z1 = y1 / pivot1 - l21 * z2
    z0 = r0 - q01 * z1 - q02 * z2
    candidates = torch.stack((z0, z1, z2), -1)  # (..., 8, 3)

    worst = torch.amin(torch.minimum(candidates, linear[..., None, :] + candidates @ gram), -1)
    is_regular = (pivot1 > SMALLEST_PIVOT) & (pivot2 > SMALLEST_PIVOT)
    best = torch.where(is_regular, torch.where(worst < -EQUALLY_GOOD, worst, -EQUALLY_GOOD), -torch.inf).argmax(-1)
    return candidates.take_along_dim(best[..., None, None], -2)[..., 0, :]


@lru_cache(maxsize=8)
def _supports(device: torch.device) -> tuple[Tensor, Tensor]:
    """Every subset of three anchors as a row of zeros and ones, small subsets first; and its pairs 01, 02, 12."""
    codes = sorted(range(2**ANCHORS), key=int.bit_count)
    rows = [[float(code >> k & 1) for k in range(ANCHORS)] for code in codes]
    pairs = [[a * b, a * c, b * c] for a, b, c in rows]
    return torch.tensor(rows, dtype=torch.float64, device=device), torch.tensor(
        pairs, dtype=torch.float64, device=device
    )
