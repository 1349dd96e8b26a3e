"""The compiled course of the QP beside the plain solver: equal to round-off, or left to it."""

import math

import pytest
import torch

from fl_platform import qp
from fl_platform.errors import UserError
from fl_platform.kernels.many_anchors import compiled_solve, solve
from fl_platform.qp import QPError

FLOAT32_GRAM = 3e-7


def problem(anchors: torch.Tensor, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gram matrices, products and squared norms of problems (L, C, d) and (L, d)."""
    products = (anchors @ vectors.unsqueeze(-1)).squeeze(-1)
    return anchors @ anchors.mT, products, vectors.square().sum(-1)


def random(problems: int, count: int, width: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    anchors = torch.randn(problems, count, width, generator=generator, dtype=torch.float64)
    anchors *= 10.0 ** torch.randint(-6, 7, (problems, count, 1), generator=generator)
    return anchors, torch.randn(problems, width, generator=generator, dtype=torch.float64)


def assert_same(found: qp.Solution, expected: qp.Solution, anchors: torch.Tensor) -> None:
    lengths = anchors.norm(dim=-1)
    torch.testing.assert_close(found.multipliers * lengths, expected.multipliers * lengths, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.norm_ratio, expected.norm_ratio, rtol=1e-12, atol=1e-12)
    assert found.active.equal(expected.active)
    assert float((found.residual - expected.residual).abs().max()) < 1e-13
    assert found.fallbacks == expected.fallbacks == 0


def assert_equal(found: qp.Solution, expected: qp.Solution) -> None:
    for name, values in vars(expected).items():
        torch.testing.assert_close(getattr(found, name), values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("count", "width"), [(1, 5), (3, 50), (17, 60), (100, 400), (250, 2_000)])
@pytest.mark.parametrize("options", [(0.0, 0.0), (0.05, 0.0), (0.0, 0.01)], ids=["plain", "margin", "dropped"])
@pytest.mark.parametrize("resolution", [qp.dual.EXACT_GRAM, FLOAT32_GRAM])
def test_independent_anchors_take_the_usual_course(count, width, options, resolution):
    margin, drop_threshold = options
    anchors, vectors = random(3, count, width, seed=count)
    given = problem(anchors, vectors)
    errors = torch.tensor([resolution])
    found = compiled_solve(*given, margin, drop_threshold, errors)
    assert found is not None
    expected = qp.solve(*given, margin=margin, drop_threshold=drop_threshold, resolution=errors)
    assert_same(found, expected, anchors)
    assert float(found.residual.max()) < 1e-14


def test_nothing_to_correct_leaves_no_multiplier():
    anchors, _ = random(2, 20, 100, seed=0)
    zero = torch.zeros(100, dtype=torch.float64)
    given = problem(anchors, torch.stack([anchors[0].sum(0), zero]))
    given[1][0].abs_()
    found = compiled_solve(*given, 0.0, 0.0, FLOAT32_GRAM)
    assert found is not None
    assert not found.multipliers.any()
    assert not found.active.any()
    assert found.norm_ratio.tolist() == [1.0, 1.0]
    assert found.residual.tolist() == [0.0, 0.0]


def test_zero_anchors_demand_nothing():
    anchors, vectors = random(2, 8, 50, seed=1)
    anchors[:, [2, 5]] = 0.0
    given = problem(anchors, vectors)
    found = compiled_solve(*given, 0.0, 0.0, FLOAT32_GRAM)
    assert found is not None
    assert not found.multipliers[:, [2, 5]].any()
    assert_same(found, qp.solve(*given, resolution=FLOAT32_GRAM), anchors)


def test_of_no_anchors_and_of_no_problems():
    for shape in ((2, 0, 7), (0, 3, 7)):
        given = problem(torch.ones(shape, dtype=torch.float64), torch.ones(shape[0], 7, dtype=torch.float64))
        assert_equal(solve(*given), qp.solve(*given))


@pytest.mark.parametrize("kind", ["duplicate", "opposite", "collinear"])
def test_dependent_anchors_are_left_to_the_plain_solver(kind):
    anchors, _ = random(1, 6, 30, seed=2)
    anchors[0, 5] = {"duplicate": anchors[0, 0], "opposite": -anchors[0, 0], "collinear": anchors[0, :5].sum(0)}[kind]
    given = problem(anchors, -anchors.sum(1) + 0.1 * anchors[:, 5])
    given[1][0, [0, 5]] = -given[1][0, [0, 5]].abs()  # both ask for a correction
    assert compiled_solve(*given, 0.0, 0.0, FLOAT32_GRAM) is None
    assert_equal(solve(*given, on_failure="keep"), qp.solve(*given, on_failure="keep"))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", [0, 1, 2])
def test_bad_numbers_are_not_hidden(bad, where):
    given = problem(*random(1, 5, 20, seed=3))
    given[where].view(-1)[0] = bad
    assert_equal(solve(*given), qp.solve(*given))


def test_what_has_no_solution_is_refused_as_before():
    anchors = torch.eye(4, dtype=torch.float64)[:1].repeat(2, 1) * torch.tensor([[1.0], [-1.0]])
    given = problem(anchors.unsqueeze(0), torch.ones(1, 4, dtype=torch.float64))
    with pytest.raises(QPError, match=r"with margin=0.5 opposite anchors admit no vector"):
        solve(*given, margin=0.5)
    assert solve(*given, margin=0.5, on_failure="keep").fallbacks == 1


def test_bad_options_are_named():
    with pytest.raises(UserError, match=r"algorithm.qp.solver=exakt"):
        solve(*problem(*random(1, 5, 20, seed=3)), solver="exakt")
