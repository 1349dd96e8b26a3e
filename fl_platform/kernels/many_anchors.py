"""The QP of many anchors by its usual course, compiled. Its plain twin is ``qp.solve``, which has the other courses.

Of a hundred anchors, block steps of the active-set method find the optimum with a few small factorisations, fewer
numbers than the calls around them cost. Whatever needs more is left to the plain twin: dependent anchors, single steps,
numbers that are not finite, and what misses the tolerance. The two round differently.

Gain (``python -m benchmarks.kernels --only many``, Zen 5, m = 100, some 35 anchors active, CPU time of rounds with and
without in turn): 11 % of a round of GradMA-S with a small network, 4.6 ms for 5.2, 2.6 % of one in W1, 36.1 for 37.0,
and 1.6 % of one of GradMA, whose workers do more; the QP itself takes 0.25 ms for 1.3.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fl_platform import qp
from fl_platform.qp.dual import EXACT_GRAM
from fl_platform.qp.solve import accepted, check_options

MEASURES = 3
"""Numbers per problem beside its multipliers: how many are not zero, residual, norm ratio."""
VECTORS = 5
"""Vectors of working memory, beside two matrices."""


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
) -> qp.Solution:
    """``qp.solve`` of problems (L) on a host."""
    check_options(margin, drop_threshold, solver, on_failure)
    if solver == "exact":
        found = compiled_solve(gram, products, squared_norm, margin, drop_threshold, resolution)
        if found is not None:
            return found
    return qp.solve(
        gram,
        products,
        squared_norm,
        margin=margin,
        drop_threshold=drop_threshold,
        solver=solver,
        resolution=resolution,
        on_failure=on_failure,
    )


def compiled_solve(
    gram: Tensor,
    products: Tensor,
    squared_norm: Tensor,
    margin: float,
    drop_threshold: float,
    resolution: Tensor | float,
) -> qp.Solution | None:
    """What ``solve`` returns; None where a problem does not take the usual course."""
    problems, count = products.shape
    gram, products, squared_norm = gram.contiguous(), products.contiguous(), squared_norm.contiguous()
    errors = torch.as_tensor(resolution, dtype=torch.float64).expand(problems)
    table = torch.stack([errors, accepted(errors, "exact")], dim=1)
    found = torch.empty(problems, count + MEASURES, dtype=torch.float64)
    work = torch.empty((2 * count + VECTORS) * count, dtype=torch.float64)
    compiled_active_set()(
        gram.data_ptr(),
        products.data_ptr(),
        squared_norm.data_ptr(),
        table.data_ptr(),
        problems,
        count,
        found.data_ptr(),
        work.data_ptr(),
        margin,
        drop_threshold,
    )
    active, residual, norm_ratio = found[:, count:].unbind(1)
    if not bool(torch.isfinite(norm_ratio).all()):
        return None
    return qp.Solution(multipliers=found[:, :count], active=active.long(), residual=residual, norm_ratio=norm_ratio)


def compiled_active_set() -> Callable[..., None]:
    """The compiled function; ask for it ahead, so that the first round does not compile."""
    from fl_platform.kernels import machine_code  # which other methods do not need

    return machine_code.function("compiled_active_set", "solve")
