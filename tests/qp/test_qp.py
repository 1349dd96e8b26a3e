"""The projection is the projection: optimality, the geometry of cones, degenerate anchors, segments, bad numbers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import Tensor

from fl_platform.errors import UserError
from fl_platform.qp import QPError, project, project_stack, projection, solve
from fl_platform.qp.projection import combine

KINDS = ("random", "duplicate", "opposite", "zero", "collinear", "nearly_parallel", "scales", "grid")


def make_problem(kind: str, count: int, dimension: int, seed: int) -> tuple[Tensor, Tensor]:
    """A vector and anchors of one degenerate kind, float64."""
    rng = np.random.default_rng(seed)
    anchors, vector = rng.standard_normal((count, dimension)), rng.standard_normal(dimension)
    if kind == "duplicate":
        anchors[-1] = anchors[0]
    elif kind == "opposite":
        anchors[-1] = -3 * anchors[0]
    elif kind == "zero":
        anchors[-1] = 0
    elif kind == "collinear":
        anchors[-1] = anchors[:2].sum(0)
    elif kind == "nearly_parallel":
        anchors[-1] = anchors[0] + 1e-4 * rng.standard_normal(dimension)
    elif kind == "scales":
        anchors *= rng.choice([1e6, 1.0, 1e-8], size=(count, 1))
        vector *= rng.choice([1e6, 1.0, 1e-8])
    elif kind == "grid":
        anchors = rng.integers(-1, 2, (count, dimension)).astype(float)
        vector = rng.integers(-1, 2, dimension).astype(float)
    return torch.tensor(vector), torch.tensor(anchors)


problems = st.builds(
    make_problem, st.sampled_from(KINDS), st.integers(1, 8), st.integers(1, 10), st.integers(0, 2**32 - 1)
)
small_problems = st.builds(
    make_problem, st.sampled_from(KINDS), st.integers(1, 3), st.integers(1, 10), st.integers(0, 2**32 - 1)
)
seeds = st.integers(0, 2**32 - 1)


def unit(anchors: Tensor) -> Tensor:
    length = anchors.norm(dim=-1, keepdim=True)
    return anchors / torch.where(length > 0, length, 1.0)


def oracle(vector: Tensor, anchors: Tensor) -> Tensor:
    """p + Az with z from scipy's nonnegative least squares |Az + p|, in the space of the vectors."""
    columns = unit(anchors).T
    scale = max(float(vector.norm()), 1e-300)
    multipliers, _ = nnls(columns.numpy(), -(vector / scale).numpy(), maxiter=10_000)
    return vector + scale * (columns @ torch.from_numpy(multipliers))


def assert_close(actual: Tensor, expected: Tensor, scale: Tensor, tolerance: float) -> None:
    assert float((actual - expected).norm()) <= tolerance * float(scale.norm()), (actual, expected)


@given(problems)
@settings(max_examples=150, deadline=None)
def test_equals_nonnegative_least_squares(problem):
    vector, anchors = problem
    expected = oracle(vector, anchors)
    if float((unit(anchors) @ expected).min()) < -1e-9 * float(vector.norm()):
        return  # the oracle itself went wrong, as it does when only round-off is infeasible
    assert_close(project(vector, anchors).vectors, expected, vector, 1e-6)


@given(problems)
@settings(max_examples=150, deadline=None)
def test_meets_the_optimality_conditions(problem):
    vector, anchors = problem
    result = project(vector, anchors)
    projected, scale = result.vectors, float(vector.norm())
    assert float((unit(anchors) @ projected).min()) >= -1e-7 * scale
    assert (result.multipliers >= 0).all()
    assert_close(vector + result.multipliers[0] @ anchors, projected, vector, 1e-12)
    assert abs(float(projected @ (vector - projected))) <= 1e-7 * scale**2
    assert float(projected.norm()) <= scale * (1 + 1e-12)
    assert float(result.residual) <= 1e-7
    # a Gram matrix knows squared lengths: the root of a round-off near 0 is far larger than the round-off
    assert math.isclose(float(result.norm_ratio) ** 2 * scale**2, float(projected.norm()) ** 2, abs_tol=1e-8 * scale**2)
    assert int(result.active) == int((result.multipliers > 0).sum())


@given(problems)
@settings(max_examples=60, deadline=None)
def test_projecting_twice_changes_nothing(problem):
    vector, anchors = problem
    once = project(vector, anchors).vectors
    assert_close(project(once, anchors).vectors, once, vector, 1e-7)


@given(problems, st.sampled_from([1e-8, 0.5, 3.0, 1e6]))
@settings(max_examples=60, deadline=None)
def test_is_positively_homogeneous(problem, factor):
    vector, anchors = problem
    expected = factor * project(vector, anchors).vectors
    assert_close(project(factor * vector, anchors).vectors, expected, factor * vector, 1e-6)


@given(problems, seeds)
@settings(max_examples=60, deadline=None)
def test_never_increases_distances(problem, seed):
    first, anchors = problem
    second = torch.tensor(np.random.default_rng(seed).standard_normal(len(first))) * first.norm()
    distance = float((project(first, anchors).vectors - project(second, anchors).vectors).norm())
    assert distance <= float((first - second).norm()) + 1e-6 * float(first.norm())


@given(problems, seeds)
@settings(max_examples=60, deadline=None)
def test_ignores_scale_order_and_repetition_of_anchors(problem, seed):
    vector, anchors = problem
    rng = np.random.default_rng(seed)
    factors = torch.tensor(10.0 ** rng.uniform(-6, 6, (len(anchors), 1)))
    order = torch.from_numpy(rng.permutation(len(anchors)))
    disguised = torch.cat([(factors * anchors)[order], anchors[:1]])
    assert_close(project(vector, disguised).vectors, project(vector, anchors).vectors, vector, 1e-6)


@given(small_problems)
@settings(max_examples=100, deadline=None)
def test_three_anchors_enumerated_equal_the_active_set(problem):
    vector, anchors = problem
    padded = torch.cat([anchors, torch.zeros(4 - len(anchors), len(vector), dtype=torch.float64)])  # four: active set
    stack = project_stack([vector[None], *(anchor[None] for anchor in anchors)])
    assert_close(stack.vectors[0], project(vector, padded).vectors, vector, 1e-6)


@given(st.integers(1, 4), st.integers(0, 3), seeds)
@settings(max_examples=40, deadline=None)
def test_a_stack_equals_its_problems_one_by_one(rows, count, seed):
    generator = torch.Generator().manual_seed(seed)
    columns = torch.randn(rows, 1 + count, 11, generator=generator)
    segments = [(0, 3), (3, 4), (4, 11)]
    together = project_stack(columns.unbind(1), segments=segments)
    listed = project_stack([column.contiguous() for column in columns.unbind(1)], segments=segments)
    assert torch.equal(together.vectors, listed.vectors)
    turned = project_stack([column.T.contiguous().T for column in columns.unbind(1)], segments=segments)
    assert torch.equal(together.vectors, turned.vectors)
    assert together.vectors.dtype == torch.float32
    assert together.multipliers.shape == (rows, 3, count)
    for row in range(rows):
        alone = project(columns[row, 0].double(), columns[row, 1:].double(), segments=segments)
        torch.testing.assert_close(together.vectors[row].double(), alone.vectors, rtol=1e-5, atol=1e-5)


def test_a_stack_is_projected_without_reading_a_value():
    """Meta tensors have no values: any wait for the device or branch on data would fail."""
    columns = torch.empty(4, 4, 100, device="meta")
    result = project_stack(columns.unbind(1), segments=[(0, 40), (40, 100)], margin=0.1)
    assert result.vectors.shape == (4, 100)
    assert result.residual.shape == result.active.shape == result.norm_ratio.shape == (4, 2)


@given(problems)
@settings(max_examples=60, deadline=None)
def test_segments_imply_the_whole(problem):
    vector, anchors = problem
    width = len(vector)
    whole = project(vector, anchors)
    assert torch.equal(project(vector, anchors, segments=[(0, width)]).vectors, whole.vectors)
    cut = width // 2
    parts = project(vector, anchors, segments=[(0, cut), (cut, width)]).vectors
    assert float((unit(anchors) @ parts).min()) >= -1e-6 * float(vector.norm())
    assert_close(parts[:cut], project(vector[:cut], anchors[:, :cut]).vectors, vector, 1e-12)


def test_a_vector_that_agrees_comes_back_with_the_same_bits():
    vector = torch.tensor([[1.0, -0.0, 0.1]])
    anchors = torch.tensor([[[1.0, 5.0, 0.0], [0.0, -7.0, 3.0], [1.0, 1.0, 1.0]]])
    for result in (project(vector, anchors), project_stack([vector, *anchors.unbind(1)])):
        assert torch.equal(result.vectors, vector)
        assert torch.equal(result.vectors.signbit(), vector.signbit())
        assert not result.multipliers.any()
        assert float(result.norm_ratio) == 1


def test_round_off_below_zero_is_no_conflict():
    vector, anchor = torch.tensor([1.0, -1e-13], dtype=torch.float64), torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    assert torch.equal(project(vector, anchor).vectors, vector)


def test_closed_forms():
    vector = torch.tensor([-1.0, 2.0], dtype=torch.float64)
    axis = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(project(vector, axis).vectors, torch.tensor([0.0, 2.0], dtype=torch.float64))
    with_margin = project(vector, axis, margin=0.5).vectors  # the first coordinate must be half of |p| = sqrt 5
    torch.testing.assert_close(with_margin, torch.tensor([math.sqrt(5) / 2, 2.0], dtype=torch.float64))
    spanning = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, -1.0]], dtype=torch.float64)
    assert float(project(vector, spanning).vectors.norm()) <= 1e-12
    assert float(project(vector, spanning[:3]).vectors.norm()) <= 1e-12


@pytest.mark.parametrize(("value", "anchors", "expected"), [(2.0, [1, 3], 2.0), (2.0, [1, -3], 0.0), (-2.0, [5], 0.0)])
def test_one_coordinate_is_a_sign_test(value, anchors, expected):
    columns = torch.tensor(anchors, dtype=torch.float64).unsqueeze(1)
    assert project(torch.tensor([value], dtype=torch.float64), columns).vectors.item() == pytest.approx(expected)


@pytest.mark.parametrize("count", [0, 2, 5])
def test_zero_vectors_and_zero_anchors_are_left_alone(count):
    zero, vector = torch.zeros(4), torch.tensor([1.0, -2.0, 3.0, 0.0])
    assert torch.equal(project(zero, torch.randn(count, 4)).vectors, zero)
    assert torch.equal(project(vector, torch.zeros(count, 4)).vectors, vector)


def test_anchors_near_the_smallest_float_do_not_overflow():
    generator = torch.Generator().manual_seed(0)
    vector, other = torch.randn(2, 1, 12, generator=generator)
    tiny = -1e-42 * vector + 1e-43 * other  # denormal in float32
    columns = [vector, tiny, other - vector]
    stack = project_stack(columns)
    assert stack.multipliers.max() > torch.finfo(torch.float32).max
    anchors = torch.stack(columns[1:], 1)
    expected = project(vector.double(), anchors.double()).vectors
    combined = combine(columns, stack.multipliers, [(0, 12)])
    for found in (stack.vectors, combined, project(vector, anchors).vectors):
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("elements", [5, 1 << 24], ids=["in chunks", "at once"])
def test_float32_columns_are_combined_in_float64_and_rounded_once(elements, monkeypatch):
    monkeypatch.setattr(projection, "CHUNK_ELEMENTS", elements)
    generator = torch.Generator().manual_seed(0)
    columns = list(torch.randn(4, 3, 40, generator=generator))
    multipliers = 1e3 * torch.randn(3, 2, 3, generator=generator, dtype=torch.float64)
    multipliers[1, 0] = 0.0
    found = combine(columns, multipliers, [(0, 17), (17, 40)])
    per_coordinate = multipliers.repeat_interleave(torch.tensor([17, 23]), dim=1)
    exact = columns[0].double() + sum(per_coordinate[..., k] * columns[1 + k].double() for k in range(3))
    assert bool(((found.double() - exact).abs() <= exact.abs() * 2.0**-24 * 1.0001).all())
    assert torch.equal(found[1, :17], columns[0][1, :17])


def test_many_anchors_in_few_and_many_dimensions():
    for count, dimension in ((100, 10), (100, 64), (100, 2000), (400, 300)):
        generator = torch.Generator().manual_seed(count + dimension)
        anchors = torch.randn(count, dimension, generator=generator, dtype=torch.float64)
        vector = torch.randn(dimension, generator=generator, dtype=torch.float64)
        assert_close(project(vector, anchors).vectors, oracle(vector, anchors), vector, 1e-7)


def test_short_anchors_are_dropped_by_their_share_of_the_longest():
    vector = torch.tensor([-1.0, -1.0])
    anchors = torch.tensor([[1.0, 0.0], [0.0, 1e-4]])
    assert torch.equal(project(vector, anchors, drop_threshold=1e-3).vectors, torch.tensor([0.0, -1.0]))
    assert torch.equal(project(vector, anchors, drop_threshold=1e-5).vectors, torch.tensor([0.0, 0.0]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("count", [2, 6])
@pytest.mark.parametrize("where", ["vector", "anchor"])
def test_bad_numbers_are_not_hidden(bad, count, where):
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(1, 1 + count, 5, generator=generator)
    columns[0, 0 if where == "vector" else 2, 1] = bad
    assert not project(columns[0, 0], columns[0, 1:]).vectors.isfinite().all()
    if count <= 3:
        assert not project_stack(columns.unbind(1)).vectors.isfinite().all()


def test_a_bad_segment_leaves_the_others_alone():
    columns = torch.randn(2, 3, 6)
    columns[0, 1, 0] = math.nan
    result = project_stack(columns.unbind(1), segments=[(0, 3), (3, 6)]).vectors
    assert result[0, :3].isnan().all()
    assert result[0, 3:].isfinite().all()
    assert result[1].isfinite().all()


def test_an_impossible_margin_fails_or_is_counted():
    vector = torch.tensor([1.0, 0.0, 0.0, 0.0])
    opposite = torch.tensor([[0.0, 1.0, 0, 0], [0.0, -1.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]])
    for anchors in (opposite, opposite[:2]):
        with pytest.raises(QPError, match=r"margin=0.1.*margin of 0"):
            project(vector, anchors, margin=0.1)
        kept = project(vector, anchors, margin=0.1, on_failure="keep")
        assert kept.fallbacks == 1
        assert torch.equal(kept.vectors, vector)
    assert float(project_stack([vector[None], *opposite[:2].unsqueeze(1)], margin=0.1).residual) > 0.01


def test_margins_that_can_be_met_are_met():
    generator = torch.Generator().manual_seed(3)
    anchors = torch.randn(6, 40, generator=generator, dtype=torch.float64)
    vector = torch.randn(40, generator=generator, dtype=torch.float64)
    result = project(vector, anchors, margin=0.2)
    cosines = unit(anchors) @ result.vectors / vector.norm()
    assert float(cosines.min()) >= 0.2 - 1e-9
    assert float(cosines[result.multipliers[0] > 0].max()) <= 0.2 + 1e-9


def test_solve_takes_batches_of_gram_matrices():
    generator = torch.Generator().manual_seed(5)
    anchors = torch.randn(4, 7, 20, generator=generator, dtype=torch.float64)
    vectors = torch.randn(4, 20, generator=generator, dtype=torch.float64)
    products = (anchors @ vectors.unsqueeze(-1)).squeeze(-1)
    solution = solve(anchors @ anchors.mT, products, vectors.square().sum(-1))
    together = vectors + (solution.multipliers.unsqueeze(1) @ anchors).squeeze(1)
    for row in range(4):
        assert_close(together[row], oracle(vectors[row], anchors[row]), vectors[row], 1e-9)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"solver": "exakt"}, "algorithm.qp.solver=exakt.*did you mean 'exact'"),
        ({"margin": 1.0}, "margin=1.0.*< 1"),
        ({"drop_threshold": -0.1}, "drop_threshold=-0.1.*>= 0"),
        ({"on_failure": "ignore"}, "on_failure=ignore.*keep"),
        ({"segments": [(0, 2), (3, 4)]}, "do not cover"),
    ],
)
def test_bad_options_are_named(options, sentence):
    with pytest.raises(UserError, match=sentence):
        project(torch.ones(4), torch.ones(2, 4), **options)


def test_bad_shapes_are_named():
    with pytest.raises(UserError, match=r"\(2, 3\) do not fit a vector of shape \(4,\)"):
        project(torch.ones(4), torch.ones(2, 3))
    with pytest.raises(UserError, match="4 anchors given"):
        project_stack([torch.ones(1, 4)] * 5)
