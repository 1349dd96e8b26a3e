"""From Gram matrix and products to multipliers, with the optimality conditions checked on every solve."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fl_platform.errors import UserError, unknown_name
from fl_platform.qp.active_set import active_set, hildreth
from fl_platform.qp.convex import clarabel, convex_layer
from fl_platform.qp.dual import EXACT_GRAM, Dual, QPError, Solution, normalise, report

SOLVERS = ("exact", "cvxpylayers", "clarabel")
TOLERANCE = {"exact": 1e-7, "cvxpylayers": 1e-6, "clarabel": 1e-4}
"""Largest accepted violation of the optimality conditions, in cosines. The exact solver stays near 1e-15 but for
anchors that are parallel to within the square root of the Gram matrix's error."""


def solve(
    gram: Tensor,
    products: Tensor,
    squared_norm: Tensor,
    *,
    margin: float = 0.0,
    drop_threshold: float = 0.0,
    solver: str = "exact",
    resolution: Tensor | float = EXACT_GRAM,
    on_failure: str = "raise",
) -> Solution:
    """Multipliers for problems ``...``: ``gram`` (..., C, C), ``products`` (..., C), ``squared_norm`` (...), float64.

    ``resolution`` is the relative error of the Gram entries. ``on_failure="keep"`` leaves a vector that no solver
    could project unchanged and counts it in ``fallbacks``; the default raises QPError.
    """
    check_options(margin, drop_threshold, solver, on_failure)
    shape, count, number = products.shape, products.shape[-1], squared_norm.numel()
    gram, products = gram.reshape(number, count, count), products.reshape(number, count)
    dual = normalise(gram, products, squared_norm.reshape(number), margin, drop_threshold)
    accuracy = torch.as_tensor(resolution, dtype=torch.float64, device=products.device).expand(shape[:-1]).reshape(-1)
    todo = torch.nonzero(~dual.satisfied & dual.finite).squeeze(-1)
    part = Dual(dual.gram[todo], dual.linear[todo], dual.scale[todo], margin)
    found, fallbacks = _solve_all(part, accuracy[todo], solver, on_failure)
    multipliers = torch.zeros_like(dual.linear).index_put((todo,), found)
    fields = {
        name: values.reshape(shape if name == "multipliers" else shape[:-1])
        for name, values in report(dual, multipliers).items()
    }
    return Solution(**fields, fallbacks=fallbacks)


def check_options(margin: float, drop_threshold: float, solver: str, on_failure: str) -> None:
    """Raise UserError for options of a projection that are out of range."""
    if solver not in SOLVERS:
        raise unknown_name("algorithm.qp.solver", solver, SOLVERS)
    if not 0 <= margin < 1:
        raise UserError(f"margin={margin} is not allowed; it must be >= 0 and < 1")
    if not 0 <= drop_threshold < 1:
        raise UserError(f"drop_threshold={drop_threshold} is not allowed; it must be >= 0 and < 1")
    if on_failure not in ("raise", "keep"):
        raise UserError(f"on_failure={on_failure} is not allowed; allowed: raise | keep")


def _solve_all(dual: Dual, resolution: Tensor, solver: str, on_failure: str) -> tuple[Tensor, int]:
    """(B, C) multipliers of problems that need a solver, and how many were given up."""
    if not dual.linear.numel():
        return dual.linear, 0
    try:
        found = _dispatch(dual, resolution, solver)
    except QPError:
        if on_failure == "raise":
            raise
        return torch.zeros_like(dual.linear), len(dual.linear)
    failed = ~(_excess(dual, found, resolution, solver) <= 1)
    if solver == "exact" and bool(failed.any()):
        found = _second_try(dual, found, failed, resolution)
        failed = ~(_excess(dual, found, resolution, solver) <= 1)
    if not bool(failed.any()):
        return found, 0
    if on_failure == "raise":
        raise _failure(dual, found, failed, solver)
    return torch.where(failed.unsqueeze(-1), 0.0, found), int(failed.sum())


def _excess(dual: Dual, found: Tensor, resolution: Tensor, solver: str) -> Tensor:
    """(...), residual over tolerance; nearly opposite anchors have long multipliers, and those cost digits.

    It is NaN, which no tolerance admits, for multipliers whose sum no number holds.
    """
    length = found.abs().sum(-1).clamp_min(1)
    excess: Tensor = dual.residual(found) / (accepted(resolution, solver) * length.sqrt())
    return torch.where(torch.isfinite(length), excess, torch.nan)


def accepted(resolution: Tensor, solver: str) -> Tensor:
    """The residual that is accepted where multipliers are short, for Gram entries known to ``resolution``."""
    return resolution.sqrt().mul(3).clamp_min(TOLERANCE[solver])


def _second_try(dual: Dual, found: Tensor, failed: Tensor, resolution: Tensor) -> Tensor:
    """Give failed problems to coordinate descent, from nothing and from what was found, and keep what is best."""
    for index in failed.nonzero().squeeze(-1).tolist():
        one = Dual(dual.gram[index], dual.linear[index], dual.scale[index], dual.margin)
        tries = [found[index]]
        for start in (torch.zeros_like(found[index]), found[index]):
            tries.append(_host(partial(hildreth, start=start.cpu(), tolerance=TOLERANCE["exact"]), dual, index))
        excess = [_excess(one, trial, resolution[index], "exact").nan_to_num(torch.inf) for trial in tries]
        found[index] = tries[int(torch.stack(excess).argmin())]
    return found


def _dispatch(dual: Dual, resolution: Tensor, solver: str) -> Tensor:
    if solver == "cvxpylayers":
        return convex_layer(dual)
    if solver == "clarabel":
        return clarabel(dual)
    errors = resolution.tolist()
    rows = [_host(partial(active_set, resolution=error), dual, index) for index, error in enumerate(errors)]
    return torch.stack(rows)


def _host(method: Callable[[Tensor, Tensor], Tensor], dual: Dual, index: int) -> Tensor:
    """Solve one problem on the host."""
    found = method(dual.gram[index].detach().cpu(), dual.linear[index].detach().cpu())
    return found.to(dual.linear.device)


def _failure(dual: Dual, found: Tensor, failed: Tensor, solver: str) -> QPError:
    worst = dual.residual(found)[failed].max().item()
    advice = f"; with margin={dual.margin:g} opposite anchors admit no vector at all, so try a margin of 0"
    return QPError(
        f"the {solver} QP failed on {int(failed.sum())} of {len(found)} problems with {found.shape[-1]} anchors: "
        f"optimality residual {worst:.3g}, largest multiplier {found[failed].abs().max().item():.3g} (anchors and "
        f"vector scaled to length 1){advice if dual.margin else ''}"
    )
