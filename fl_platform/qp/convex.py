"""The same dual through general convex solvers: a differentiable cvxpylayers layer, and Clarabel by way of cvxpy."""

import importlib
import warnings
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from fl_platform.errors import UserError
from fl_platform.qp.dual import Dual, QPError

JITTER = 1e-12
"""Added to the unit diagonal before factoring, so that dependent anchors have a factor and unique multipliers."""
LAYER_ARGUMENTS = {"eps": 1e-10, "max_iters": 100_000, "n_jobs_forward": 1}
CLARABEL_ARGUMENTS = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12, "warm_start": False}


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UserError(
            f"algorithm.qp.solver needs the package {package} ({error}); pip install {package}, "
            "or use algorithm.qp.solver=exact"
        ) from None


@lru_cache(maxsize=8)
def _problem(count: int) -> tuple[Any, Any, Any, Any]:
    """min_{z >= 0} 1/2 |Rz|^2 + b'z with R'R = Q, as (problem, R, b, z)."""
    cvxpy = _import("cvxpy")
    factor, linear, multipliers = cvxpy.Parameter((count, count)), cvxpy.Parameter(count), cvxpy.Variable(count)
    objective = cvxpy.Minimize(0.5 * cvxpy.sum_squares(factor @ multipliers) + linear @ multipliers)
    return cvxpy.Problem(objective, [multipliers >= 0]), factor, linear, multipliers


@lru_cache(maxsize=8)
def _layer(count: int) -> Any:
    layers = _import("cvxpylayers.torch")
    problem, factor, linear, multipliers = _problem(count)
    return layers.CvxpyLayer(problem, parameters=[factor, linear], variables=[multipliers])


def _factor(gram: Tensor) -> Tensor:
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor: Tensor = torch.linalg.cholesky(gram + JITTER * identity)
    return factor.mT


def convex_layer(dual: Dual) -> Tensor:
    """(B, C) multipliers, differentiable in the Gram matrices and products."""
    layer = _layer(dual.linear.shape[-1])
    gram, linear = dual.gram.cpu(), dual.linear.cpu()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # cvxpylayers 1.2 calls numpy 2 the old way
        warnings.simplefilter("ignore", UserWarning)  # "inaccurate": the optimality check decides
        try:
            (multipliers,) = layer(_factor(gram), linear, solver_args=LAYER_ARGUMENTS)
        except RuntimeError as error:
            raise QPError(f"cvxpylayers found no solution: {error}") from error
    return torch.as_tensor(multipliers).to(dual.linear)


def clarabel(dual: Dual) -> Tensor:
    """(B, C) multipliers, one interior-point solve per problem."""
    cvxpy = _import("cvxpy")
    _import("clarabel")
    problem, factor, linear, multipliers = _problem(dual.linear.shape[-1])
    solutions = torch.empty_like(dual.linear)
    for index in range(len(solutions)):
        factor.value = _factor(dual.gram[index]).cpu().numpy()
        linear.value = dual.linear[index].cpu().numpy()
        _interior_point(cvxpy, problem)
        if multipliers.value is None:
            raise QPError(f"clarabel found no solution: {problem.status}")
        solutions[index] = torch.as_tensor(multipliers.value)
    return solutions


def _interior_point(cvxpy: Any, problem: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "may be inaccurate": the optimality check decides
        try:
            problem.solve(solver=cvxpy.CLARABEL, **CLARABEL_ARGUMENTS)
        except cvxpy.SolverError:  # it gave up short of the tight tolerances; its own are looser
            try:
                problem.solve(solver=cvxpy.CLARABEL, warm_start=False)
            except cvxpy.SolverError as error:
                raise QPError(f"clarabel found no solution: {error}") from error
