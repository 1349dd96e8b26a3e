"""Compiled products of rows with rows, beside the same in float64."""

import pytest
import torch

from fl_platform.kernels.compiled_products import PIECE
from fl_platform.kernels.row_products import NARROW, matrix_products
from fl_platform.kernels.row_products import compiled_row_products as row_products
from fl_platform.kernels.row_products import row_products as dispatched


def matrix(rows: int, width: int) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("probes", [0, 1, 3, 4, 6])
def test_any_number_of_rows_and_probes(size, probes):
    rows, vector = matrix(size, 300), matrix(1, 300)[0]
    slots = torch.arange(probes) * 5 % size
    expected = torch.cat([rows[slots], vector.unsqueeze(0)]).double() @ rows.double().T
    found = row_products(rows, slots, vector, 0, 300)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("start", "stop"), [(0, 2 * PIECE + 5), (3, PIECE + 3), (PIECE - 1, PIECE), (9, 9)])
def test_only_the_coordinates_asked_for_count(start, stop):
    """Also where pieces meet; small whole numbers, whose sums are exact."""
    whole = torch.randint(-3, 4, (6, 2 * PIECE + 5), generator=torch.Generator().manual_seed(0)).float()
    rows, vector = whole[:5].clone(), whole[5]
    part = whole[:, start:stop].double()
    found = row_products(rows, torch.tensor([4, 0]), vector, start, stop)
    assert found.equal(part[[4, 0, 5]] @ part[:5].T)


def test_long_sums_of_one_sign_keep_their_digits():
    rows = matrix(3, 40 * PIECE).abs() + 0.5
    exact = rows.double() @ rows.double().T
    found = row_products(rows, torch.arange(3), rows[0], 0, 40 * PIECE)[:3]
    assert ((found - exact) / exact).abs().max() < 3e-7


def test_what_is_not_a_number_stays_in_its_row():
    rows = matrix(5, 50)
    rows[2, 7] = float("nan")
    found = row_products(rows, torch.tensor([0, 2]), rows[1], 0, 50)
    assert found[1].isnan().all()
    assert found[[0, 2]].isnan().sum(0).tolist() == [0, 0, 2, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [NARROW, NARROW + 1])
def test_narrow_rows_are_multiplied_in_float64_and_wide_float32_ones_by_the_compiled_twin(dtype, width):
    rows, slots = matrix(6, width + 10).to(dtype), torch.tensor([5, 1])
    vector, span = rows[2].neg(), (3, 3 + width)
    found = dispatched(rows, slots, vector, *span)
    assert torch.equal(found, matrix_products(rows, slots, vector, *span, torch.float64)) == (
        width == NARROW or dtype == torch.float64
    )
    torch.testing.assert_close(found, matrix_products(rows, slots, vector, *span, dtype), rtol=1e-5, atol=1e-2)
    if width > NARROW and dtype == torch.float32:
        assert torch.equal(found, row_products(rows, slots, vector, *span))


def test_no_rows_have_no_products():
    assert row_products(torch.empty(0, 4), torch.tensor([], dtype=torch.int64), torch.ones(4), 0, 4).shape == (1, 0)
