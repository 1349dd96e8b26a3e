"""At most three anchors: try every support at once. No loop, no branch on values, no wait for the device."""

import torch
from torch import Tensor

from fl_platform.qp.dual import Dual

MAX_ANCHORS = 3
EQUALLY_GOOD = 1e-14
"""Violations below this are round-off; among such candidates the smallest support wins."""


def enumerate_supports(dual: Dual, resolution: Tensor) -> Tensor:
    """(..., C) multipliers of the support A with z_A = -Q_AA^-1 b_A that violates the optimality conditions least.

    Singular supports are skipped: by Caratheodory some optimal support has independent anchors.
    """
    count = dual.products.shape[-1]
    supports = _supports(count, dual.gram.device)  # (2^C, C)
    inside = supports.unsqueeze(-1) & supports.unsqueeze(-2)
    identity = torch.eye(count, dtype=dual.gram.dtype, device=dual.gram.device)
    systems = torch.where(inside, dual.gram.unsqueeze(-3), identity)
    right = torch.where(supports, -dual.linear.unsqueeze(-2), 0.0)
    factor, failure = torch.linalg.cholesky_ex(systems)
    pivots = factor.diagonal(dim1=-2, dim2=-1).square().amin(-1)
    usable = (failure == 0) & (pivots > 10 * resolution.unsqueeze(-1))
    factor = torch.where(usable.unsqueeze(-1).unsqueeze(-1), factor, identity)
    candidates = torch.cholesky_solve(right.unsqueeze(-1), factor).squeeze(-1)  # (..., 2^C, C)
    slack = dual.linear.unsqueeze(-2) + candidates @ dual.gram
    violation = torch.minimum(candidates, slack).clamp_max(0).neg().amax(-1)
    violation = torch.where(usable, violation.clamp_min(EQUALLY_GOOD), torch.inf)
    best = violation.argmin(-1, keepdim=True).unsqueeze(-1).expand(*violation.shape[:-1], 1, count)
    return candidates.gather(-2, best).squeeze(-2)


def _supports(count: int, device: torch.device) -> Tensor:
    """Every subset of ``count`` anchors as a row of booleans, small subsets first."""
    codes = sorted(range(2**count), key=int.bit_count)
    return torch.tensor([[bool(code >> k & 1) for k in range(count)] for code in codes], device=device)
