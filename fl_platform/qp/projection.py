"""Vectors in, projected vectors out: whole vectors or one projection per segment of coordinates."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fl_platform.errors import UserError
from fl_platform.qp.dual import EXACT_GRAM, Solution, normalise, report
from fl_platform.qp.enumeration import MAX_ANCHORS, enumerate_supports
from fl_platform.qp.solve import solve

Segments = Sequence[tuple[int, int]]

CHUNK_ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 24}
"""Elements converted to float64 at a time: on a CPU they stay in its cache, on a GPU few launches matter more."""


@dataclass(frozen=True, kw_only=True)
class Projection(Solution):
    """Projected vectors, shaped like the input, and their solution per problem: (..., L) for L segments."""

    vectors: Tensor


def project(
    vector: Tensor,
    anchors: Tensor,
    *,
    segments: Segments | None = None,
    margin: float = 0.0,
    solver: str = "exact",
    drop_threshold: float = 0.0,
    on_failure: str = "raise",
) -> Projection:
    """Project ``vector`` (d) or (S, d) so that it agrees with ``anchors`` (C, d) or (S, C, d); in float64.

    ``segments`` are (start, stop) pairs that cover the coordinates: one independent projection for each.
    """
    segments = check_segments(segments, vector.shape[-1])
    if anchors.shape[:-2] + anchors.shape[-1:] != vector.shape:
        raise UserError(
            f"anchors of shape {tuple(anchors.shape)} do not fit a vector of shape {tuple(vector.shape)}; "
            "give (d) with (C, d), or (S, d) with (S, C, d)"
        )
    columns = torch.cat([vector.unsqueeze(-2), anchors], dim=-2)
    parts = [columns[..., start:stop].double() for start, stop in segments]
    gram = torch.stack([part @ part.mT for part in parts], dim=-3)
    solution = solve(
        gram[..., 1:, 1:],
        gram[..., 0, 1:],
        gram[..., 0, 0],
        margin=margin,
        drop_threshold=drop_threshold,
        solver=solver,
        on_failure=on_failure,
    )
    pieces = []
    for index, (start, stop) in enumerate(segments):
        multipliers = solution.multipliers[..., index, :].to(vector.dtype).unsqueeze(-2)
        correction = (multipliers @ anchors[..., start:stop]).squeeze(-2)
        before = vector[..., start:stop]
        pieces.append(torch.where((multipliers != 0).any(-1), before + correction, before))
    return Projection(vectors=torch.cat(pieces, dim=-1), **vars(solution))


def project_stack(
    columns: Tensor | Sequence[Tensor], *, segments: Segments | None = None, margin: float = 0.0
) -> Projection:
    """Project S vectors with at most three anchors each, on their device and without waiting for it.

    ``columns`` is (S, 1 + C, d), or 1 + C tensors (S, d): the vector, then its anchors. The first form saves a copy.
    Nothing is raised: ``residual`` stays large where a positive margin cannot be met.
    """
    count = (columns.shape[1] if isinstance(columns, Tensor) else len(columns)) - 1
    if not 0 <= count <= MAX_ANCHORS:
        raise UserError(f"{count} anchors given; project_stack takes at most {MAX_ANCHORS}, use project")
    width = columns.shape[-1] if isinstance(columns, Tensor) else columns[0].shape[-1]
    segments = check_segments(segments, width)
    gram = stack_gram(columns, segments)
    dual = normalise(gram[..., 1:, 1:], gram[..., 0, 1:], gram[..., 0, 0], margin, 0.0)
    resolution = torch.full((), EXACT_GRAM, dtype=gram.dtype, device=gram.device)
    solution = report(dual, enumerate_supports(dual, resolution) if count else dual.products)
    return Projection(vectors=combine(columns, solution.multipliers, segments), **vars(solution))


def check_segments(segments: Segments | None, width: int) -> Segments:
    if segments is None:
        return [(0, width)]
    edges = [0, *(stop for _, stop in segments)]
    if [start for start, _ in segments] != edges[:-1] or edges[-1] != width:
        raise UserError(f"segments {list(segments)[:4]}... do not cover the coordinates 0 to {width} in order")
    return segments


def stack_gram(columns: Tensor | Sequence[Tensor], segments: Segments) -> Tensor:
    """(S, L, K, K) float64 inner products of the K columns of each vector, per segment."""
    rows, number = (columns.shape[:2]) if isinstance(columns, Tensor) else (len(columns[0]), len(columns))
    device = columns[0].device
    gram = torch.zeros(len(segments), rows, number, number, dtype=torch.float64, device=device)
    step = max(1, CHUNK_ELEMENTS.get(device.type, 1 << 24) // max(1, rows * number))
    widest = max(stop - start for start, stop in segments)
    chunk = torch.empty(rows, number, min(step, widest), dtype=torch.float64, device=device)
    for segment, (start, stop) in enumerate(segments):
        for left in range(start, stop, step):
            part = slice(left, min(left + step, stop))
            wide = chunk[:, :, : part.stop - left]
            if isinstance(columns, Tensor):
                wide.copy_(columns[:, :, part])
            else:
                for k, column in enumerate(columns):
                    wide[:, k] = column[:, part]
            gram[segment].baddbmm_(wide, wide.mT)
    return gram.transpose(0, 1)


def combine(columns: Tensor | Sequence[Tensor], multipliers: Tensor, segments: Segments) -> Tensor:
    """(S, d) vector + sum_k z_k anchor_k, exactly the vector (even the sign of zeros) where every z_k is 0."""
    vector, *anchors = columns.unbind(1) if isinstance(columns, Tensor) else columns
    if not anchors:
        return vector.clone()
    projected = torch.empty_like(vector)
    changed = (multipliers != 0).any(-1)
    weights = multipliers.to(vector.dtype)
    for segment, (start, stop) in enumerate(segments):
        before, after = vector[:, start:stop], projected[:, start:stop]
        source = before
        for k, anchor in enumerate(anchors):
            torch.addcmul(source, weights[:, segment, k, None], anchor[:, start:stop], out=after)
            source = after
        torch.where(changed[:, segment, None], after, before, out=after)
    return projected
