"""The simulated device itself: real values, CUDA's rules of placement, and everything that would wait is counted."""

import io
import pickle

import pytest
import torch

from tests.device import simulated
from tests.device.simulated import counting

DEVICE = simulated.device()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(6.0, device=DEVICE).view(2, 3)


def test_values_views_and_gradients_are_those_of_the_cpu(x):
    here = torch.arange(6.0).view(2, 3)
    assert x.device == DEVICE
    assert torch.equal((x @ x.mT + 1).cpu(), here @ here.mT + 1)
    x[0].mul_(2)
    here[0].mul_(2)
    assert torch.equal(x.cpu(), here)
    out = torch.empty(2, 3, device=DEVICE)
    assert torch.add(x, x, out=out) is out
    assert torch.equal(out.cpu(), 2 * here)
    w = torch.ones(3, requires_grad=True, device=DEVICE)
    assert torch.equal(torch.autograd.grad((x @ w).sum(), w)[0].cpu(), here.sum(0))
    assert torch.equal(torch.vmap(lambda row: row.cumsum(0))(x).cpu(), here.cumsum(1))


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x + torch.ones(3),
        lambda x: x @ torch.ones(3),
        lambda x: torch.cat([x, torch.ones(2, 3)]),
        lambda x: torch.where(x > 0, x, torch.ones(2, 3)),
        lambda x: torch.add(x, x, out=torch.empty(2, 3)),
        lambda x: x.index_select(0, torch.tensor([0])),
        lambda x: x + torch.ones(3, device=simulated.device(1)),
        lambda x: x.add_(torch.ones(3)),
    ],
)
def test_mixed_devices_are_refused(x, mix):
    with pytest.raises(RuntimeError, match="same device"):
        mix(x)


def test_scalars_of_the_host_are_passed_by_value(x):
    with counting() as counts:
        assert torch.equal((x + torch.tensor(2.0)).cpu(), torch.arange(6.0).view(2, 3) + 2)
    assert counts.totals == (1, 1, 0)


def test_numpy_needs_a_copy(x):
    with pytest.raises(TypeError, match="numpy"):
        x.numpy()


@pytest.mark.parametrize(
    ("read", "times"),
    [
        (lambda x: x.sum().item(), 1),
        (lambda x: float(x.sum()), 1),
        (lambda x: bool(x.sum() > 0), 1),
        (lambda x: x.cpu(), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: torch.empty(2, 3).copy_(x), 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: x[x > 0], 1),
        (lambda x: x.masked_select(x > 0), 1),
        (lambda x: torch.bincount(x.long().flatten()), 1),
        (lambda x: torch.unique(x), 1),
        (lambda x: torch.equal(x, x), 1),
        (lambda x: torch.linalg.cholesky(torch.eye(2, device=DEVICE)), 1),
        (lambda x: x.sum() + x[0].amax() - x.mean(), 0),
        (lambda x: x[:, torch.zeros(2, dtype=torch.int64, device=DEVICE)], 0),
        (lambda x: torch.linalg.cholesky_ex(torch.eye(2, device=DEVICE)), 0),
    ],
)
def test_reads_of_the_host_are_counted(x, read, times):
    with counting() as counts:
        read(x)
    assert counts.reads.total() == times


@pytest.mark.parametrize(
    ("copy", "times"),
    [
        (lambda x: torch.ones(3).to(DEVICE), 1),
        (lambda x: torch.tensor([1.0, 2.0], device=DEVICE), 1),
        (lambda x: x.copy_(torch.ones(3)), 1),
        (lambda x: x[[0, 1], [1, 2]], 2),
        (lambda x: x[torch.tensor([0, 1])], 1),
        (lambda x: x.new_zeros(3), 0),
        (lambda x: x[0, 1:], 0),
        (lambda x: x.double(), 0),
    ],
)
def test_copies_to_the_device_are_counted(x, copy, times):
    with counting() as counts:
        copy(x)
    assert counts.copies.total() == times


def test_views_and_allocations_are_no_kernels(x):
    with counting() as counts:
        x.view(3, 2).mT[1:].unsqueeze(0).expand(4, -1, -1)
        torch.empty(5, device=DEVICE)
    assert counts.totals == (0, 0, 0)
    with counting() as counts:
        (x * 2).relu_()
    assert counts.totals == (2, 0, 0)


def test_counts_name_the_line_of_the_package():
    from fl_platform.noise import bits

    with counting() as counts:
        bits(torch.tensor(1, device=DEVICE), 4)
    assert {line.partition(":")[0] for _, line in counts.kernels} == {"noise.py"}


def test_pickled_tensors_keep_their_device_and_saved_ones_do_not(x):
    assert pickle.loads(pickle.dumps(x)).device == DEVICE
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)["x"]
    assert loaded.device.type == "cpu"
    assert torch.equal(loaded, x.cpu())
