"""Products of linear layers by oneDNN, which torch uses for convolutions, in place of MKL, which it uses for products.

MKL runs its AVX2 code on processors of other makers than its own: on an AMD EPYC with AVX-512 it multiplies at 118
GFLOP/s where oneDNN has 255. The plain twins are ``F.linear`` in an evaluation and ``torch.mm`` in a gradient.

- ``Linear`` is a mode for forward passes that nobody differentiates: an evaluation. Its logits are those of F.linear
  to rounding; a model's parameters never depend on them.
- ``write_weight_gradient`` has the bits of torch.mm: both add up to ``SHORT`` products one after another (a test
  compares them). The forward pass of training, with more terms in a sum, would change the bits of every run, and stays.

Gain (``python -m benchmarks.kernels``, W1, one thread, CPU time of rounds with and without in turn):
``Linear`` 27 % of a round of FedAvg (46 ms for 63) and 25 % with BatchNorm; ``write_weight_gradient`` 5 % of FedAvg
and 3 % of GradMA (``benchmarks.compare_checkouts`` with ``by_mkl``: 46.4 ms for 48.9, 104.0 for 107.6).
"""

import platform
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

SHORT = 128
"""Terms of a sum that both libraries add in order; MKL begins a new part after 192."""
WORTH_IT = 1 << 20
"""Multiplications in a product from which on oneDNN's ten microseconds of preparation are made up for."""


def is_available() -> bool:
    """Tell whether torch has oneDNN's linear layer, on a processor on which it was compared with MKL's."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    is_built_in: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return is_x86 and is_built_in and hasattr(torch.ops.mkldnn, "_linear_pointwise")


IS_AVAILABLE = is_available()


class Linear(TorchFunctionMode):
    """Within it, float32 linear layers on the CPU are computed by oneDNN; without gradients, in this thread."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is F.linear and not kwargs and suits(*args):
            x, weight, bias = (*args, None)[:3]
            return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return func(*args, **(kwargs or {}))


def suits(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Tell whether oneDNN computes this layer, and faster; a user's model may hold layers of any kind."""
    return (
        IS_AVAILABLE
        and type(x) is Tensor
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and x.layout == weight.layout == torch.strided
        and weight.dim() == 2
        and (bias is None or _is_plain_bias(bias, weight))
        and x.numel() * len(weight) >= WORTH_IT
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
    )


def _is_plain_bias(bias: Tensor, weight: Tensor) -> bool:
    """oneDNN reads a bias as one block of float32, whatever its strides and type are."""
    return (
        bias.shape == weight.shape[:1]
        and bias.dtype == torch.float32
        and bias.layout == torch.strided
        and bias.is_contiguous()
        and bias.device.type == "cpu"
    )


def by_mkl(gradient: Tensor, x: Tensor, into: Tensor) -> None:
    """Write gradient^T x, the gradient of a linear layer's weight, into a tensor."""
    torch.mm(gradient.t(), x, out=into)


def by_onednn(gradient: Tensor, x: Tensor, into: Tensor, short: int = SHORT, worth_it: int = WORTH_IT) -> None:
    """The same by oneDNN where sums are short and the product is large."""
    if x.dtype == torch.float32 and len(x) <= short and into.numel() * len(x) >= worth_it:
        into.copy_(torch.ops.mkldnn._linear_pointwise(gradient.t(), x.t(), None, "none", [], ""))
    else:
        torch.mm(gradient.t(), x, out=into)


write_weight_gradient = by_onednn if IS_AVAILABLE else by_mkl  # TorchScript compiles the one that is here
