"""The worker's projection: its parts, and its QP against cvxpylayers on the same batch."""

import torch
from torch import Tensor

from benchmarks.clock import Ratio, in_turns
from benchmarks.table import Entry
from fl_platform import models
from fl_platform.kernels.worker_projection import enumerate_on_host, project_stack
from fl_platform.models.network import Network
from fl_platform.qp import solve
from fl_platform.qp.dual import normalise
from fl_platform.qp.projection import Segments, stack_gram

COHORT, ANCHORS, CALLS = 10, 3, 20


def w1_segments() -> Segments:
    """The tensors of W1's network."""
    return Network(models.build("mlp", (1, 28, 28), 10, norm="none")).parameters.segments


def columns(dimension: int) -> list[Tensor]:
    """Vectors of a cohort that conflict with their anchors: the gradients of consecutive steps, and the drift."""
    generator = torch.Generator().manual_seed(1)
    gradient, noise, other = (torch.randn(COHORT, dimension, generator=generator) for _ in range(3))
    return [gradient, other - 0.3 * gradient, noise - 0.1 * gradient, -gradient + 2 * noise]


def against_cvxpylayers(quick: bool) -> list[Entry]:
    """From Gram matrices to multipliers, ten problems at once; both are judged by the same optimality conditions."""
    width = w1_segments()[-1][1]
    gram = stack_gram(columns(width), [(0, width)])
    parts = gram[..., 1:, 1:], gram[..., 0, 1:], gram[..., 0, 0]

    def exactly() -> None:
        for _ in range(CALLS):  # one alone would be timed with another program's cache
            enumerate_on_host(gram, 0.0)

    many, layer = in_turns(3 if quick else 10, exactly, lambda: solve(*parts, solver="cvxpylayers"))
    exact = many * (1 / CALLS)
    dual = normalise(*parts, 0.0, 0.0)
    residuals = {
        "exact": float(enumerate_on_host(gram, 0.0)["residual"].max()),
        "cvxpylayers": float(dual.residual(solve(*parts, solver="cvxpylayers").multipliers / dual.scale).max()),
    }
    is_better = residuals["exact"] <= residuals["cvxpylayers"]
    speedup = layer / exact
    why = (
        *(f"{name}: largest violation of the optimality conditions {value:.1e}" for name, value in residuals.items()),
        f"exact {1e6 * exact.wall:.0f} us, cvxpylayers {1e6 * layer.wall:.0f} us for {COHORT} QPs of {ANCHORS} anchors",
    )
    value = speedup if is_better else Ratio(0.0)
    return [Entry("exact_worker_qp_against_cvxpylayers", value, "x faster, and more accurate", ">= 50", why)]


def parts(quick: bool) -> list[Entry]:
    """One projection of one worker, as the loop engine asks for it; nothing to reach."""
    segments = w1_segments()
    width = segments[-1][1]
    ones = [column[:1].clone() for column in columns(width)]
    repeats = 10 if quick else 60
    entries = []
    for scope, cut in (("whole_vector", [(0, width)]), ("per_tensor", segments)):
        gram = stack_gram(ones, cut)
        whole, solved = in_turns(
            repeats,
            lambda cut=cut: project_stack(ones, segments=cut),  # type: ignore[misc]
            lambda gram=gram: enumerate_on_host(gram, 0.0),  # type: ignore[misc]
        )
        rest = whole - solved
        why = (f"QP {1e6 * solved.wall:.0f} us", f"Gram matrix in float64, combination {1e6 * rest.wall:.0f} us")
        value = Ratio(1e6 * whole.wall, 1e6 * whole.cpu)
        entries.append(Entry(f"one_projection_{scope}", value, "us", "", why))
    return entries
