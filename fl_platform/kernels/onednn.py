"""Products of linear layers by oneDNN, which torch uses for convolutions, in place of MKL, which it uses for products.

MKL runs its AVX2 code on processors of other makers than its own: on an AMD EPYC with AVX-512 it multiplies at 118
GFLOP/s where oneDNN has 255. The plain twin is ``F.linear``; sums are parted elsewhere, so the two differ by rounding.

``product`` is what a large layer is computed by wherever bits count: in the perceptron's kernel, and under the mode
``Linear``, in which forward passes of the loop engine run whose gradients autograd takes. Whether a layer is large
depends on its shape alone, so methods that reduce to one another have equal bits, with the kernel or without.
Evaluations of other networks than perceptrons run in the mode too.

oneDNN's own ReLU in the same call is not used: it turns a NaN into a zero, and a model that diverged would go on.

Gain (W1, one thread, CPU time of rounds with and without in turn): in training 13 % of a round of FedAvg and of GradMA
(``benchmarks.compare_checkouts`` with ``by_mkl`` in the perceptron: 44.7 ms for 51.2, 100 for 115); in an evaluation
22 % of a round of FedAvg and 18 % with BatchNorm (load 10: 59 ms for 76, 65 for 79; when perceptrons were evaluated in
the mode). Methods whose gradients autograd takes gain nothing: the mode costs as much (MOON 103 ms for 102, FedLC 67
for 64).
"""

import platform
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode

WORTH_IT = 1 << 20
"""Multiplications in a product from which on oneDNN's preparations, 10 to 25 microseconds, are made up for."""


def is_available() -> bool:
    """Tell whether torch has oneDNN's linear layer, on a processor on which it was compared with MKL's."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    is_built_in: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return is_x86 and is_built_in and hasattr(torch.ops.mkldnn, "_linear_pointwise")


IS_AVAILABLE = is_available()


def by_mkl(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x weight^T + bias for a matrix x."""
    return F.linear(x, weight, bias)


def by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None, worth_it: int = WORTH_IT) -> Tensor:
    """The same by oneDNN where the product is large."""
    if x.dtype == torch.float32 and x.numel() * len(weight) >= worth_it:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return found
    return F.linear(x, weight, bias)


def written_by_mkl(x: Tensor, weight: Tensor, into: Tensor) -> None:
    """Write x weight^T into a tensor."""
    torch.mm(x, weight.t(), out=into)


def written_by_onednn(x: Tensor, weight: Tensor, into: Tensor, worth_it: int = WORTH_IT) -> None:
    """The same by oneDNN where the product is large."""
    if x.dtype == torch.float32 and x.numel() * len(weight) >= worth_it:
        into.copy_(torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], ""))
    else:
        torch.mm(x, weight.t(), out=into)


product = by_onednn if IS_AVAILABLE else by_mkl  # TorchScript compiles the ones that are here
write_product = written_by_onednn if IS_AVAILABLE else written_by_mkl


class Linear(TorchFunctionMode):
    """Within it, large float32 linear layers on the CPU are ``product``; in this thread."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is F.linear and not kwargs and not torch.compiler.is_compiling() and suits(*args):
            return LinearLayer.apply(*(*args, None)[:3])  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


class LinearLayer(torch.autograd.Function):
    """F.linear and its derivatives by ``product``; derivatives of derivatives are torch's own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        times = by_mkl if torch.is_grad_enabled() else product
        gradient, rows = gradients[0].flatten(0, -2), x.flatten(0, -2)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            times(gradient, weight.t(), None).view(x.shape) if needs_x else None,
            times(gradient.t(), rows.t(), None) if needs_weight else None,
            gradient.sum(0) if needs_bias else None,
        )


def suits(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Tell whether ``product`` computes this layer; a user's model may hold layers of any kind."""
    return (
        IS_AVAILABLE
        and all(is_plain(tensor) for tensor in (x, weight, bias) if tensor is not None)
        and x.dim() >= 2
        and weight.dim() == 2
        and x.shape[-1] == weight.shape[1]
        and (bias is None or (bias.shape == weight.shape[:1] and bias.is_contiguous()))  # read as if it were
        and x.numel() * len(weight) >= WORTH_IT
        and not torch.is_autocast_enabled("cpu")
        and torch._C._autograd._top_saved_tensors_default_hooks(True) is None  # a checkpoint's: computed again outside
    )


def is_plain(tensor: Tensor) -> bool:
    """Tell whether a tensor is an array of float32 in this machine's memory, and nothing of another kind."""
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not is_functorch_wrapped_tensor(tensor)
    )
