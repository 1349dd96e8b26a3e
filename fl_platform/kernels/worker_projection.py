"""The worker's projection, compiled on a CPU. Its plain twin is ``qp.project_stack``.

The compiled one reads the vector and its anchors once for their Gram matrix and once more to combine them; the tensors
of the plain one are copied to float64, and products of four rows are slow in a BLAS. The two round differently.

Gain (``python -m benchmarks.kernels``, W1, one thread, CPU time of rounds with and without in turn): 28 % of a round of
GradMA, 181 ms for 250.
"""

from collections.abc import Callable, Sequence
from ctypes import addressof
from typing import Any

import torch
from torch import Tensor

from fl_platform import qp
from fl_platform.errors import UserError
from fl_platform.kernels.addresses import integers
from fl_platform.models.code import code_of
from fl_platform.qp.enumeration import ANCHORS
from fl_platform.qp.projection import Segments, check_stack

COMPILED = "compiled_projection"
FOUND = 6
"""Numbers per problem: three multipliers, how many are not zero, residual, norm ratio."""


def project_stack(columns: Sequence[Tensor], *, segments: Segments | None = None, margin: float = 0.0) -> qp.Projection:
    """``qp.project_stack`` of 1 + C tensors (S, d), for C up to three: compiled on a CPU, as it is elsewhere."""
    if code_of(columns[0]) != "cpu" or columns[0].dtype not in (torch.float32, torch.float64):
        return qp.project_stack(columns, segments=segments, margin=margin)
    segments = check_stack(columns, segments)
    if columns[0].is_meta:
        return outline(columns, segments)
    rows, width = columns[0].shape
    if any((column.shape, column.dtype) != (columns[0].shape, columns[0].dtype) for column in columns):
        raise UserError("project_stack: every anchor must have the shape and type of the vector")
    columns = [column.contiguous() for column in columns]
    addresses, edges = integers(column.data_ptr() for column in columns), integers([0, *(stop for _, stop in segments)])
    projected = torch.empty_like(columns[0])
    found = torch.empty(rows, len(segments), FOUND, dtype=torch.float64)
    compiled_projection(columns[0].dtype)(
        addressof(addresses),
        len(columns) - 1,
        rows,
        width,
        addressof(edges),
        len(segments),
        projected.data_ptr(),
        found.data_ptr(),
        margin,
    )
    return qp.Projection(vectors=projected, **as_solution(found, len(columns) - 1))


def enumerate_on_host(gram: Tensor, margin: float) -> dict[str, Any]:
    """The fields of a Solution for (S, L, 4, 4) inner products of a vector and three anchors, in float64."""
    from fl_platform.kernels import machine_code

    gram = gram.contiguous()
    found = torch.empty(*gram.shape[:2], FOUND, dtype=torch.float64)
    solve_all = machine_code.function(COMPILED, "solve_all")
    solve_all(gram.data_ptr(), gram.shape[0] * gram.shape[1], found.data_ptr(), margin)
    return as_solution(found, ANCHORS)


def as_solution(found: Tensor, anchors: int) -> dict[str, Any]:
    """The fields of a Solution, by name."""
    return {
        "multipliers": found[..., :anchors],
        "active": found[..., 3].long(),
        "residual": found[..., 4],
        "norm_ratio": found[..., 5],
    }


def outline(columns: Sequence[Tensor], segments: Segments) -> qp.Projection:
    """What the compiled projection returns, without values: it holds nothing else that counts."""
    figures = columns[0].new_empty(len(columns[0]), len(segments), dtype=torch.float64)
    return qp.Projection(
        vectors=torch.empty_like(columns[0]),
        multipliers=figures.new_empty(*figures.shape, len(columns) - 1),
        active=figures,
        residual=figures,
        norm_ratio=figures,
    )


def compiled_projection(dtype: torch.dtype) -> Callable[..., None]:
    """The compiled function for tensors of a type."""
    from fl_platform.kernels import machine_code  # which other methods do not need

    return machine_code.function(COMPILED, f"project_{dtype}".replace("torch.", ""))


def compile_projection(device: torch.device, dtype: torch.dtype) -> None:
    """Compile what projects tensors of this kind, so that the first round does not."""
    if device.type == "cpu":
        compiled_projection(dtype)
