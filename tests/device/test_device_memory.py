"""The gradient memory on a device: the CPU's projection, in a number of launches that does not grow with the model."""

from itertools import pairwise

import pytest
import torch

from fl_platform.algorithms.memory import GradientMemory
from fl_platform.kernels import row_products
from fl_platform.kernels.row_products import CHUNK
from tests.device.runs import CPU, DEVICE
from tests.device.simulated import counting

WIDTH = 3 * CHUNK + 17


def filled(
    device: torch.device, dtype: torch.dtype, width: int = WIDTH, parts: int = 1
) -> tuple[GradientMemory, torch.Tensor]:
    """Five workers that agree with each other, and a vector that opposes them."""
    generator = torch.Generator().manual_seed(3)
    deltas = torch.randn(5, width, generator=generator, dtype=torch.float64) + 0.5
    vector = torch.randn(width, generator=generator, dtype=torch.float64) - 0.5
    edges = [width * part // parts for part in range(parts + 1)]
    segments = list(pairwise(edges))
    made = GradientMemory(6, width, decay=0.5, device=device, dtype=dtype, segments=segments)
    made.admit(range(5))
    made.update(range(5), deltas.to(device, dtype))
    return made, vector.to(device, dtype)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("elements", [1, 1 << 15, 1 << 26], ids=["chunk by chunk", "two at once", "at once"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_the_projection_is_the_cpus(dtype, tolerance, elements, parts, monkeypatch):
    """float32: multipliers from Gram entries with an error of FLOAT32_GRAM, times the condition of six anchors."""
    monkeypatch.setattr(row_products, "ELEMENTS_AT_ONCE", elements * 6 if elements > 1 else 1)
    expected, found = (
        made.project(vector) for made, vector in (filled(device, dtype, parts=parts) for device in (CPU, DEVICE))
    )
    assert expected.active.min() > 0
    assert torch.equal(expected.active, found.active)
    torch.testing.assert_close(found.vectors.cpu(), expected.vectors, rtol=0, atol=tolerance)


def counts_of(width: int, parts: int = 1) -> tuple[int, int, int]:
    made, vector = filled(DEVICE, torch.float32, width, parts)
    with counting() as counts:
        made.project(vector)
    return counts.totals


def test_launches_do_not_grow_with_the_model():
    assert counts_of(40 * CHUNK) == counts_of(4 * CHUNK)


def test_reads_and_copies_do_not_grow_with_the_number_of_segments():
    assert counts_of(8 * CHUNK)[1:] == counts_of(8 * CHUNK, parts=8)[1:] == (1, 2)
