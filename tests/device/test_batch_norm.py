"""BatchNorm of a stack of workers in few kernels, as devices run it, equals the plain one of the CPU."""

import pytest
import torch

from fl_platform.federation.training_pool import load_cuda_kernels
from fl_platform.models.layers import BatchNorm, Pass, running
from tests.device.runs import CPU, DEVICE
from tests.device.simulated import counting

COUNTS = torch.tensor([[6], [4], [1], [0]])  # real rows of each worker; one row alone, and none at all


def stacked(device, x, weight, bias, mask, updates=True):
    """The output, both running statistics, and the gradients of x, weight and bias."""
    leaves = [tensor.clone().to(device).requires_grad_() for tensor in (x, weight, bias)]
    statistics = [start(weight).to(device) for start in (torch.zeros_like, torch.ones_like)]
    layer = BatchNorm(weight.shape[-1])

    def one_worker(x, weight, bias, mean, variance, mask):
        layer._parameters.update(weight=weight, bias=bias)
        layer._buffers.update(running_mean=mean, running_var=variance)
        with running(Pass(train=True, mask=mask, updates_statistics=updates)):
            return layer(x)

    axes = (0, *(0 if leaf.dim() == 2 else None for leaf in leaves[1:]), 0, 0, None if mask is None else 0)
    if weight.dim() == 1:
        statistics = [tensor.expand(len(x), -1).clone() for tensor in statistics]
    out = torch.vmap(one_worker, in_dims=axes)(*leaves, *statistics, None if mask is None else mask.to(device))
    pull = torch.arange(x.numel(), dtype=x.dtype).view_as(x).sin()
    if mask is not None:
        pull = pull * mask.view(*mask.shape, *[1] * (x.dim() - 2))
    gradients = torch.autograd.grad((out * pull.to(device)).sum(), leaves)
    return [tensor.detach().cpu() for tensor in (out, *statistics, *gradients)]


@pytest.mark.parametrize("is_shared", [False, True], ids=["stacked", "shared"])
@pytest.mark.parametrize("is_padded", [True, False], ids=["padded", "full"])
@pytest.mark.parametrize("dims", [0, 1, 2])
def test_equal_to_the_plain_one(dims, is_padded, is_shared):
    generator = torch.Generator().manual_seed(dims)
    x = torch.randn(4, 6, 3, *(5, 2)[:dims], generator=generator, dtype=torch.float64)
    shape = (3,) if is_shared else (4, 3)
    weight, bias = (torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5 for _ in range(2))
    mask = torch.arange(6) < COUNTS if is_padded else None
    for updates in (True, False):
        expected = stacked(CPU, x, weight, bias, mask, updates)
        found = stacked(DEVICE, x, weight, bias, mask, updates)
        for name, a, b in zip(("out", "mean", "variance", "x", "weight", "bias"), expected, found, strict=True):
            real = slice(None) if mask is None or name != "out" else mask
            assert torch.allclose(a[real], b[real], rtol=0, atol=1e-12 if name in ("mean", "variance") else 1e-9), name
        assert torch.equal(found[1], torch.zeros_like(found[1])) != updates


def test_few_kernels():
    x, weight, bias = torch.randn(4, 6, 3, 5, 5), torch.ones(4, 3), torch.zeros(4, 3)
    found = []
    for mask in (torch.arange(6) < COUNTS.clamp(min=2), None):
        with counting() as counts:
            stacked(DEVICE, x, weight, bias, mask)
        found.append(counts.kernels.total())
    assert found == [6, 13]  # four of each are this test's; the plain ones have 51


def test_without_kernels_for_cuda_a_sentence_says_so(capfd):
    assert not load_cuda_kernels.__wrapped__()  # no CUDA here, whether Triton is installed or not
    assert "normalised by plain operations, which take longer (" in capfd.readouterr().err
