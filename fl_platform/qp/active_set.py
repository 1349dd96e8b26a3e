"""Many anchors: an active-set method on the Gram matrix (after Goldfarb and Idnani 1983), in float64 on the host.

A state is a support A with independent anchors and z_A = -Q_AA^-1 b_A >= 0, the optimum for the anchors in A alone.
Block steps move many anchors at once while the dual objective improves; single steps, which always improve it, finish.
All linear algebra is torch's: its thread count is the run's, while a second BLAS would compete for the same cores.
"""

import math

import torch
from torch import Tensor

VIOLATED = 1e-13
"""A slack below minus this asks for the anchor; smaller ones are round-off of cosines."""
BLOCK_STEPS = 30
NOISE = 100.0
"""How many times the error bound of a pivot it must exceed."""


def active_set(gram: Tensor, linear: Tensor, resolution: float) -> Tensor:
    """Multipliers of one normalised problem whose Gram entries are known to ``resolution``."""
    support, multipliers = _block_steps(gram, linear, resolution)
    return _single_steps(gram, linear, resolution, support, multipliers)


def _block_steps(gram: Tensor, linear: Tensor, resolution: float) -> tuple[Tensor, Tensor]:
    support, multipliers, objective = torch.empty(0, dtype=torch.int64), torch.zeros_like(linear), 0.0
    for _ in range(BLOCK_STEPS):
        slack = linear + gram @ multipliers
        slack[support] = 0.0
        violated = slack < -VIOLATED
        if not bool(violated.any()):
            break
        violated[support] = True
        trial, values = _best_within(gram, linear, violated.nonzero().squeeze(-1), resolution)
        improved = float(linear[trial] @ values)
        if not improved < objective - VIOLATED:
            break
        support, objective = trial, improved
        multipliers = torch.zeros_like(linear)
        multipliers[support] = values
    return support, multipliers


def _best_within(gram: Tensor, linear: Tensor, candidates: Tensor, resolution: float) -> tuple[Tensor, Tensor]:
    """A support among the candidates with positive multipliers: solve, discard what is not positive, repeat."""
    candidates = candidates[_independent(_block(gram, candidates), NOISE * resolution * len(candidates))]
    while True:
        values = _solve(gram, candidates, -linear[candidates])
        positive = values > 0
        if bool(positive.all()):
            return candidates, values
        candidates = candidates[positive]


def _independent(block: Tensor, tolerance: float) -> Tensor:
    """Indices of independent anchors: all, or those that a Cholesky factorisation with pivoting picks."""
    factor, failure = torch.linalg.cholesky_ex(block)
    if not int(failure) and float(factor.diagonal().amin()) ** 2 > tolerance:
        return torch.arange(len(block))
    rows, left = torch.zeros_like(block), block.diagonal().clone()
    chosen: list[int] = []
    while len(chosen) < len(block):
        pivot = int(left.argmax())
        height = float(left[pivot])
        if not height > tolerance:
            break
        known = rows[: len(chosen)]
        row = (block[pivot] - known[:, pivot] @ known) / math.sqrt(height)
        rows[len(chosen)] = row
        left -= row.square()
        left[pivot] = 0.0
        chosen.append(pivot)
    return torch.tensor(sorted(chosen), dtype=torch.int64)


def _single_steps(gram: Tensor, linear: Tensor, resolution: float, support: Tensor, multipliers: Tensor) -> Tensor:
    """Admit the most violated anchor, shedding those whose multiplier reaches zero, until none is violated."""
    harmless = torch.zeros(len(linear), dtype=torch.bool)
    for _ in range(10 * len(linear) + 10):
        slack = linear + gram @ multipliers
        slack[support] = 0.0
        slack[harmless] = 0.0
        entering = int(slack.argmin())
        violation = -float(slack[entering])
        if not violation > VIOLATED:
            break
        admitted = _admit(gram, resolution, support, multipliers, entering, violation)
        if admitted is None:
            harmless[entering] = True
            continue
        support = admitted
        harmless[:] = False
        exact = _solve(gram, support, -linear[support])
        if bool((exact >= 0).all()):
            multipliers[support] = exact  # the steps that led here carry their round-off
    return multipliers


def _admit(
    gram: Tensor, resolution: float, support: Tensor, multipliers: Tensor, entering: int, violation: float
) -> Tensor | None:
    """Raise one multiplier until its constraint holds; the new support, or None if the violation is unresolvable.

    An anchor in the span of the support is violated by round-off alone, unless a margin shifts the constraints.
    """
    while True:
        cross = gram[support, entering]
        response = _solve(gram, support, cross)
        pivot = float(gram[entering, entering] - cross @ response)
        spread = 1.0 + float(response.abs().sum())
        noise = NOISE * resolution * spread  # what the error of the Gram entries can make of a pivot
        is_dependent = pivot <= noise
        if is_dependent and violation <= math.sqrt(noise):
            return None
        full = math.inf if is_dependent else violation / pivot
        partial, leaving = math.inf, -1
        if len(support):
            least = noise if is_dependent else 0.0  # a response of round-off would ask for a step without end
            ratios = torch.where(response > least, multipliers[support] / response, math.inf)
            leaving = int(ratios.argmin())
            partial = float(ratios[leaving])
        step = min(full, partial)
        if not math.isfinite(step):
            return None  # no vector meets all margins; the optimality check reports it
        multipliers[support] = (multipliers[support] - step * response).clamp_min(0)
        multipliers[entering] += step
        if full <= partial:
            return torch.cat([support, torch.tensor([entering])])
        violation -= step * pivot
        multipliers[support[leaving]] = 0.0
        support = torch.cat([support[:leaving], support[leaving + 1 :]])


def _block(gram: Tensor, support: Tensor) -> Tensor:
    return gram[support.unsqueeze(1), support]


def _solve(gram: Tensor, support: Tensor, right: Tensor) -> Tensor:
    """Q_AA^-1 r. A failed factorisation leaves numbers that the optimality check will refuse."""
    factor, _ = torch.linalg.cholesky_ex(_block(gram, support))
    return torch.cholesky_solve(right.unsqueeze(-1), factor).squeeze(-1)


def hildreth(gram: Tensor, linear: Tensor, start: Tensor, tolerance: float, sweeps: int = 1000) -> Tensor:
    """Coordinate descent z_i <- max(0, z_i - (Qz + b)_i / Q_ii) from ``start``: slow, but it needs no factorisation."""
    multipliers, slack = start.clone(), linear + gram @ start
    for _ in range(sweeps):
        for i in range(len(linear)):
            change = torch.maximum(-multipliers[i], -slack[i] / gram[i, i])
            multipliers[i] += change
            slack += change * gram[i]
        if float(torch.minimum(multipliers, slack).abs().amax()) <= tolerance:
            break
    return multipliers
