"""The compiled projection of the workers beside its plain twin."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_platform import qp
from fl_platform.errors import UserError
from fl_platform.kernels.worker_projection import enumerate_on_host, project_stack
from fl_platform.qp.projection import enumerate_gram, stack_gram
from tests.qp.test_qp import assert_close, seeds, small_problems


@given(small_problems, st.sampled_from([0.0, 0.1]))
@settings(max_examples=100, deadline=None)
def test_multipliers_give_the_correction_of_the_plain_ones(problem, margin):
    vector, anchors = problem
    gram = stack_gram([vector[None], *(anchor[None] for anchor in anchors)], [(0, len(vector))])
    compiled, plain = enumerate_on_host(gram, margin), enumerate_gram(gram, margin)
    if float(plain["residual"]) > 1e-9:  # no vector meets the margin: any least bad support will do
        assert float(compiled["residual"]) > 1e-9
        return
    columns = torch.cat([anchors, torch.zeros(3 - len(anchors), len(vector), dtype=torch.float64)])
    corrections = [figures["multipliers"][0, 0] @ columns for figures in (compiled, plain)]
    assert_close(*corrections, vector, 1e-6)
    assert float(compiled["residual"]) <= 1e-7
    torch.testing.assert_close(compiled["norm_ratio"].square(), plain["norm_ratio"].square(), rtol=0, atol=1e-6)


@given(st.integers(1, 4), st.integers(0, 3), seeds)
@settings(max_examples=40, deadline=None)
def test_a_stack_equals_the_plain_one_whatever_its_layout(rows, count, seed):
    generator = torch.Generator().manual_seed(seed)
    columns = [torch.randn(rows, 11, generator=generator) for _ in range(1 + count)]
    segments = [(0, 3), (3, 4), (4, 11)]
    compiled, plain = project_stack(columns, segments=segments), qp.project_stack(columns, segments=segments)
    torch.testing.assert_close(compiled.vectors, plain.vectors, rtol=1e-5, atol=1e-5)
    assert compiled.vectors.dtype == torch.float32
    assert compiled.multipliers.shape == plain.multipliers.shape == (rows, 3, count)
    assert compiled.active.shape == compiled.residual.shape == compiled.norm_ratio.shape == (rows, 3)
    turned = project_stack([column.T.contiguous().T for column in columns], segments=segments)
    assert torch.equal(compiled.vectors, turned.vectors)


def test_a_vector_that_agrees_comes_back_with_the_same_bits():
    columns = [torch.tensor([row]) for row in ([1.0, -0.0, 0.1], [1.0, 5.0, 0.0], [0.0, -7.0, 3.0], [1.0, 1.0, 1.0])]
    found = project_stack(columns)
    assert torch.equal(found.vectors, columns[0])
    assert torch.equal(found.vectors.signbit(), columns[0].signbit())
    assert not found.multipliers.any()
    assert float(found.norm_ratio) == 1


def test_anchors_near_the_smallest_float_do_not_overflow():
    vector, other = torch.randn(2, 1, 12, generator=torch.Generator().manual_seed(0))
    columns = [vector, -1e-42 * vector + 1e-43 * other, other - vector]  # the first anchor is denormal in float32
    found = project_stack(columns)
    assert found.multipliers.max() > torch.finfo(torch.float32).max
    torch.testing.assert_close(found.vectors, qp.project_stack(columns).vectors, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_a_bad_segment_leaves_the_others_alone(bad, where):
    columns = list(torch.randn(3, 2, 6, generator=torch.Generator().manual_seed(1)))
    columns[where][0, 0] = bad
    found = project_stack(columns, segments=[(0, 3), (3, 6)]).vectors
    assert not found[0, :3].isfinite().all()
    assert found[0, 3:].isfinite().all()
    assert found[1].isfinite().all()


def test_an_impossible_margin_leaves_a_large_residual():
    columns = [torch.tensor([row]) for row in ([1.0, 0.0], [0.0, 1.0], [0.0, -1.0])]
    assert float(project_stack(columns, margin=0.1).residual) > 0.01


def test_too_many_anchors_are_refused_in_one_sentence():
    with pytest.raises(UserError, match="4 anchors given"):
        project_stack([torch.ones(1, 4)] * 5)


@pytest.mark.parametrize("anchor", [torch.ones(2, 6), torch.ones(1, 5), torch.ones(2, 5, dtype=torch.float64)])
def test_anchors_of_another_shape_or_type_are_refused(anchor):
    with pytest.raises(UserError, match="shape and type of the vector"):
        project_stack([torch.ones(2, 5), anchor])
