"""The Triton kernels of masked batch normalisation equal their plain twins, run by Triton's interpreter on the CPU."""

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed; CUDA builds of torch bring it")

from fl_platform.kernels import masked_norm as kernels
from fl_platform.models import stack_norm as twins

COUNTS = torch.tensor([[6], [4], [1], [0]])  # real rows of each worker; one row alone, and none at all


def tensors(positions: tuple[int, ...], is_strided: bool) -> tuple[torch.Tensor, ...]:
    """Stacks of x, weight, bias, mask and gradient; x and gradient in a convolution's order if they are strided."""
    generator = torch.Generator().manual_seed(len(positions))
    shape = (4, 6, 3, *positions)
    x, gradient = (torch.randn(shape, generator=generator) * 3 + 7 for _ in range(2))
    if is_strided:
        x, gradient = (t.transpose(0, 1).contiguous().transpose(0, 1) for t in (x, gradient))
    weight = (torch.rand(3, generator=generator) + 0.5).expand(4, 3)
    return x, weight, torch.rand(4, 3, generator=generator), torch.arange(6) < COUNTS, gradient


@pytest.mark.parametrize("is_strided", [False, True])
@pytest.mark.parametrize("positions", [(), (5,), (20, 13)], ids=str)
def test_equal_to_their_twins(positions, is_strided):
    x, weight, bias, mask, gradient = tensors(positions, is_strided)
    for momentum in (0.1, 0.0):
        expected, found = (
            (*kind(x, weight, bias, mask, *statistics, momentum, 1e-5), *statistics)
            for kind, statistics in (
                (kind, (torch.zeros(4, 3), torch.ones(4, 6)[:, ::2])) for kind in (twins.plain, kernels.forward)
            )
        )
        for a, b in zip(expected, found, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-5 * float(expected[2].max()))
        assert bool(found[3].any()) == (momentum > 0)
    assert found[0].stride() == x.stride()
    saved = (x, weight, mask, *expected[1:3])
    expected, found = (kind(gradient, *saved) for kind in (twins.plain_backward, kernels.backward))
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5 * float(a.abs().max()))


def test_they_are_tried_out_before_they_are_used():
    kernels.try_out(torch.device("cpu"))


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from fl_platform.kernels.masked_norm import backward_kernel, forward_kernel

TYPES = dict.fromkeys(["eps", "momentum"], "fp32") | {"mask": "*i1"}
TENSORS = ["x", "weight", "bias", "running_mean", "running_var", "out", "means", "reciprocals", "gradient"]
TENSORS += ["x_gradient", "weight_gradient", "bias_gradient"]
for kernel, constants in ((forward_kernel, {"UPDATES": True, "BLOCK": 1024}), (backward_kernel, {"BLOCK": 1024})):
    types = {name: TYPES.get(name, "*fp32" if name in TENSORS else "i32") for name in kernel.arg_names}
    ones = {name: 1 for name in types if name in ("channels", "positions", "mask_row") or name.endswith("_position")}
    for fixed in (constants, constants | ones):  # a number that is 1 becomes part of the code
        source = ASTSource(fn=kernel, signature=types | dict.fromkeys(fixed, "constexpr"), constexprs=fixed)
        for generation in (70, 80, 90):
            assert triton.compile(source, target=GPUTarget("cuda", generation, 32)).asm["cubin"]
"""


def test_they_compile_for_three_generations_of_gpus():
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, "-c", COMPILE], check=True, env=environment)
