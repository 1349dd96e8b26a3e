"""The convex-solver references agree with the exact solver, and the layer has the derivative of a projection."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_platform.qp import TOLERANCE, project, solve
from fl_platform.qp.active_set import active_set, hildreth

AGREEMENT = {"cvxpylayers": 1e-4, "clarabel": 1e-4}
"""Of projected vectors, relative to the vector; opposite anchors cost a factored solver half of its digits."""


def make_problem(kind: str, count: int, dimension: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    anchors, vector = rng.standard_normal((count, dimension)), rng.standard_normal(dimension)
    changes = {
        "duplicate": anchors[0],
        "opposite": -anchors[0],
        "zero": np.zeros(dimension),
        "collinear": anchors[:2].sum(0),
        "nearly_parallel": anchors[0] + 1e-3 * rng.standard_normal(dimension),
        "tiny": 1e-8 * anchors[-1],
        "huge": 1e6 * anchors[-1],
    }
    anchors[-1] = changes.get(kind, anchors[-1])
    return torch.tensor(vector), torch.tensor(anchors)


KINDS = ("random", "duplicate", "opposite", "zero", "collinear", "nearly_parallel", "tiny", "huge")
problems = st.builds(
    make_problem, st.sampled_from(KINDS), st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1)
)


@pytest.mark.parametrize("solver", sorted(AGREEMENT))
@given(problem=problems)
@settings(max_examples=60, deadline=None)
def test_agrees_with_the_exact_solver(solver, problem):
    vector, anchors = problem
    result = project(vector, anchors, solver=solver)
    exact = project(vector, anchors)
    assert float((result.vectors - exact.vectors).norm()) <= AGREEMENT[solver] * float(vector.norm())
    assert float(exact.residual) <= TOLERANCE["exact"]


@pytest.mark.parametrize("solver", sorted(AGREEMENT))
def test_solves_batches_and_segments(solver):
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(3, 12, generator=generator, dtype=torch.float64)
    anchors = torch.randn(3, 4, 12, generator=generator, dtype=torch.float64)
    segments = [(0, 5), (5, 12)]
    result = project(vectors, anchors, segments=segments, solver=solver)
    expected = project(vectors, anchors, segments=segments)
    torch.testing.assert_close(result.vectors, expected.vectors, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # cvxpylayers 1.2 under numpy 2
def test_the_layer_differentiates_the_projection():
    vector = torch.tensor([-1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
    anchors = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    project(vector, anchors, solver="cvxpylayers").vectors.sum().backward()
    # Only the first anchor is active: the map is v - <v, a> a / |a|^2 and its Jacobian at a = e_1 is diag(0, 1, 1).
    torch.testing.assert_close(vector.grad, torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64), rtol=0, atol=1e-5)
    # d/da of -<v, a>(a_1 + a_2 + a_3) / |a|^2 at a = e_1, v = (-1, -2, 3): (0, 3, -2) by the quotient rule.
    expected = torch.tensor([[0.0, 3.0, -2.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(anchors.grad, expected, rtol=0, atol=1e-5)


def test_coordinate_descent_reaches_the_active_set_solution():
    generator = torch.Generator().manual_seed(2)
    anchors = torch.randn(8, 30, generator=generator, dtype=torch.float64)
    anchors /= anchors.norm(dim=1, keepdim=True)
    gram, linear = anchors @ anchors.mT, anchors @ torch.randn(30, generator=generator, dtype=torch.float64)
    descended = hildreth(gram, linear, torch.zeros_like(linear), 1e-12)
    torch.testing.assert_close(descended, active_set(gram, linear, 1e-15), rtol=0, atol=1e-10)


def test_a_gram_matrix_with_float32_noise_is_solved_to_its_resolution():
    generator = torch.Generator().manual_seed(4)
    anchors = torch.randn(40, 25, generator=generator, dtype=torch.float64)  # more anchors than dimensions: singular
    vector = torch.randn(25, generator=generator, dtype=torch.float64)
    gram = anchors @ anchors.mT
    noise = torch.randn(40, 40, generator=generator, dtype=torch.float64)
    noisy = gram + 2e-8 * (noise + noise.mT) * gram.diagonal().sqrt().outer(gram.diagonal().sqrt())
    solution = solve(noisy, anchors @ vector, vector @ vector, resolution=1e-7)
    projected = vector + solution.multipliers @ anchors
    assert float((projected - project(vector, anchors).vectors).norm()) <= 1e-3 * float(vector.norm())


def test_convex_packages_are_imported_only_on_demand():
    program = "import sys, fl_platform.qp; sys.exit(any(name in sys.modules for name in ('cvxpy', 'cvxpylayers')))"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_missing_package_is_named():
    program = (
        "import sys; sys.modules['cvxpylayers'] = None\n"
        "import torch\n"
        "from fl_platform.errors import UserError\n"
        "from fl_platform.qp import project\n"
        "try:\n    project(-torch.ones(2), torch.ones(1, 2), solver='cvxpylayers')\n"
        "except UserError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "pip install cvxpylayers" in run.stdout
    assert "algorithm.qp.solver=exact" in run.stdout


def make_round_off(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Anchors as a memory holds them for a tensor whose updates are round-off: sparse, many parallel to within 1e-7."""
    rng = np.random.default_rng(seed)
    anchors = rng.integers(-1, 2, (100, 40)) * (rng.random((100, 40)) < 0.06)
    anchors = anchors + 1e-7 * rng.standard_normal((100, 40)) * (rng.random((100, 1)) < 0.5)
    vector = rng.integers(-2, 3, 40) + 1e-7 * rng.standard_normal(40)
    return torch.tensor(vector), torch.tensor(anchors.astype(np.float32).astype(np.float64))


def test_anchors_that_are_parallel_to_round_off_have_multipliers_of_ordinary_length():
    """They ended healthy runs as diverged: steps along responses of round-off had no end."""
    for seed in range(60):
        vector, anchors = make_round_off(seed)
        anchors = torch.nn.functional.normalize(anchors[anchors.norm(dim=1) > 0])
        gram, linear = anchors @ anchors.T, anchors @ vector / vector.norm()
        found = active_set(gram.fill_diagonal_(1.0), linear, 1e-15)
        slack = linear + gram @ found
        length = max(1.0, float(found.sum()))
        assert length < 1e6, seed
        assert float(torch.minimum(found, slack).abs().max()) <= 10 * TOLERANCE["exact"] * length**0.5, seed


def test_a_solution_that_is_not_exact_enough_is_refined():
    """Coordinate descent from nothing is too slow for it; from what the active set found it takes a few steps."""
    vector, anchors = make_round_off(2512)
    found = project(vector, anchors, on_failure="keep")
    assert found.fallbacks == 0
    assert float(found.residual) < 1e-6


def test_multipliers_that_no_number_can_add_up_are_solved_again(monkeypatch):
    vector, anchors = make_problem("opposite", 6, 8, 3)
    expected = project(vector, anchors)
    cancelling = torch.tensor([1.7e308, 0, 0, 0, 0, 1.7e308], dtype=torch.float64)
    method = sys.modules["fl_platform.qp.solve"]
    monkeypatch.setattr(method, "active_set", lambda gram, linear, resolution: cancelling)
    found = project(vector, anchors)
    torch.testing.assert_close(found.vectors, expected.vectors, rtol=0, atol=1e-6)
    assert found.fallbacks == 0
