"""Linear layers of evaluations by oneDNN, torch's library for convolutions, in place of MKL, its own for products.

MKL runs its AVX2 code on processors of other makers than its own: on an AMD EPYC of the Zen 5 generation it multiplies
at 118 GFLOP/s where oneDNN has 255. On one of the Zen 4 generation, whose AVX2 is as fast as its AVX-512, both have
105. The plain twin is ``F.linear``; sums are parted elsewhere, so the two differ by rounding. Training does without:
what autograd needs around such a layer costs what it saves (MOON 103 ms a round for 102, FedLC 67 for 64).

oneDNN's own ReLU in the same call is not used: it turns a NaN into a zero, and a model that diverged would go on.

Gain (W1 with GroupNorm, Zen 5, one thread, CPU time of rounds with and without in turn): 18 to 22 % of a round of
FedAvg. Perceptrons are evaluated by ``kernels/perceptron.py``.
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


class Linear(TorchFunctionMode):
    """Within it, large float32 linear layers on the CPU are oneDNN's; in this thread, for passes without gradient."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is F.linear and not kwargs and not torch.compiler.is_compiling() and suits(*args):
            return linear(*args)
        return func(*args, **(kwargs or {}))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear by oneDNN."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


def suits(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Tell whether ``linear`` computes this layer; a user's model may hold layers of any kind."""
    return (
        IS_AVAILABLE
        and all(is_plain(tensor) for tensor in (x, weight, bias) if tensor is not None)
        and x.dim() >= 2
        and weight.dim() == 2
        and x.shape[-1] == weight.shape[1]
        and (bias is None or (bias.shape == weight.shape[:1] and bias.is_contiguous()))  # read as if it were
        and x.numel() * len(weight) >= WORTH_IT
        and not torch.is_autocast_enabled("cpu")
        and not torch.is_grad_enabled()
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
