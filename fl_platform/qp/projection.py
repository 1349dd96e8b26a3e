"""Vectors in, projected vectors out: whole vectors or one projection per segment of coordinates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fl_platform.errors import UserError
from fl_platform.qp.dual import Solution, normalise, report
from fl_platform.qp.enumeration import ANCHORS, enumerate_supports
from fl_platform.qp.solve import solve

Segments = Sequence[tuple[int, int]]

CHUNK_ELEMENTS = 1 << 24
"""Elements converted to float64 at a time: few launches, and memory that does not grow with the model."""


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
        multipliers = solution.multipliers[..., index, :].unsqueeze(-2)
        correction = (multipliers @ anchors[..., start:stop].double()).squeeze(-2).to(vector.dtype)
        before = vector[..., start:stop]
        pieces.append(torch.where((multipliers != 0).any(-1), before + correction, before))
    return Projection(vectors=torch.cat(pieces, dim=-1), **vars(solution))


def project_stack(columns: Sequence[Tensor], *, segments: Segments | None = None, margin: float = 0.0) -> Projection:
    """Project S vectors with at most three anchors each, on their device and without waiting for an accelerator.

    ``columns`` are 1 + C tensors (S, d): the vector, then its anchors.
    Nothing is raised for want of a solution: ``residual`` stays large where a positive margin cannot be met.
    """
    segments = check_stack(columns, segments)
    solution: dict[str, Any] = enumerate_gram(stack_gram(columns, segments), margin)
    solution["multipliers"] = solution["multipliers"][..., : len(columns) - 1]
    return Projection(vectors=combine(columns, solution["multipliers"], segments), **solution)


def check_stack(columns: Sequence[Tensor], segments: Segments | None) -> Segments:
    """Return the segments; raise UserError for more than three anchors or segments that do not cover the columns."""
    count = len(columns) - 1
    if not 0 <= count <= ANCHORS:
        raise UserError(f"{count} anchors given; project_stack takes at most {ANCHORS}, use project")
    return check_segments(segments, columns[0].shape[-1])


def enumerate_gram(gram: Tensor, margin: float) -> dict[str, Tensor]:
    """The fields of a Solution for (..., 4, 4) inner products of a vector and three anchors."""
    dual = normalise(gram[..., 1:, 1:], gram[..., 0, 1:], gram[..., 0, 0], margin, 0.0)
    return report(dual, enumerate_supports(dual))


def check_segments(segments: Segments | None, width: int) -> Segments:
    """The segments, or one over the whole width; UserError unless they cover all coordinates in order."""
    if segments is None:
        return [(0, width)]
    edges = [0, *(stop for _, stop in segments)]
    if [start for start, _ in segments] != edges[:-1] or edges[-1] != width:
        raise UserError(f"segments {list(segments)[:4]}... do not cover the coordinates 0 to {width} in order")
    return segments


def stack_gram(columns: Sequence[Tensor], segments: Segments) -> Tensor:
    """(S, L, 4, 4) float64 inner products of the columns of each vector, per segment; missing anchors are zero."""
    (rows, width), number, device = columns[0].shape, len(columns), columns[0].device
    gram = torch.zeros(len(segments), rows, 1 + ANCHORS, 1 + ANCHORS, dtype=torch.float64, device=device)
    step = max(1, CHUNK_ELEMENTS // max(1, rows * number))
    chunk = torch.empty(rows, number, min(step, width), dtype=torch.float64, device=device)
    for left in range(0, width, step):
        right = min(left + step, width)
        for k, column in enumerate(columns):
            chunk[:, k, : right - left] = column[:, left:right]
        for segment, (start, stop) in enumerate(segments):
            start, stop = max(start, left), min(stop, right)
            if start < stop:
                part = chunk[:, :, start - left : stop - left]
                gram[segment, :, :number, :number].baddbmm_(part, part.mT)
    return gram.transpose(0, 1)


def combine(columns: Sequence[Tensor], multipliers: Tensor, segments: Segments) -> Tensor:
    """(S, d) vector + sum_k z_k anchor_k, summed in float64 and rounded once, without reading a value.

    It is exactly the vector, even the sign of zeros, where every z_k is 0.
    """
    vector, *anchors = columns
    projected = torch.empty_like(vector)
    has_correction = (multipliers != 0).any(-1)
    step = max(1, CHUNK_ELEMENTS // max(1, len(vector)))
    for segment, (start, stop) in enumerate(segments):
        for left in range(start, stop, step):
            part = slice(left, min(left + step, stop))
            before = vector[:, part]
            total = before.double() if vector.dtype != torch.float64 else before.clone()
            for k, anchor in enumerate(anchors):
                total.addcmul_(multipliers[:, segment, k, None], anchor[:, part])
            projected[:, part] = torch.where(has_correction[:, segment, None], total, before)
    return projected
