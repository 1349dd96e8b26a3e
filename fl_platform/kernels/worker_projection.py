"""The worker's projection, compiled on a CPU. Its plain twin is ``qp.project_stack``.

The compiled one reads the vector and its anchors once for their Gram matrix and once more to combine them; the tensors
of the plain one are copied to float64, and products of four rows are slow in a BLAS. The two round differently.

Gain (``python -m benchmarks.kernels``, W1, one thread, CPU time of rounds with and without in turn): 28 % of a round of
GradMA, 181 ms for 250.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fl_platform import qp
from fl_platform.models.code import code_of
from fl_platform.qp.projection import Segments, check_stack


def project_stack(columns: Sequence[Tensor], *, segments: Segments | None = None, margin: float = 0.0) -> qp.Projection:
    """``qp.project_stack`` of 1 + C tensors (S, d), for C up to three: compiled on a CPU, as it is elsewhere."""
    if code_of(columns[0]) != "cpu":
        return qp.project_stack(columns, segments=segments, margin=margin)
    if columns[0].is_meta:
        return outline(columns, check_stack(columns, segments))
    from fl_platform.kernels.compiled_projection import project_on_host  # numba takes a second to import

    return qp.Projection(**project_on_host(columns, check_stack(columns, segments), margin))


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


def compile_projection(device: torch.device, dtype: torch.dtype) -> None:
    """Compile ``project_stack`` for tensors of this kind, so that the first round does not."""
    if device.type == "cpu":
        from fl_platform.kernels.compiler import ahead

        ahead(lambda: project_stack([torch.ones(1, 1, dtype=dtype)] * 2))
