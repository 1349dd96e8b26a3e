"""Maxima of 2 x 2 pixels where no gradient is taken: of neighbours in a row, then of rows.

Its plain twin is ``F.max_pool2d``, which writes an int64 index beside every maximum, for a gradient. The values are the
same, NaN included; of zeros of both signs either may be found.

Gain (``python -m benchmarks.kernels --only pooling``, W2, one thread, CPU time of rounds with and without in turn, at a
load of 5): 6.8 % of a round in bf16-mixed (1,269 ms for 1,361), 3.6 % in float32 (1,889 for 1,960). Images that are not
channels last gain more: torch's pooling takes 6.1 ms for 64 of 32 x 28 x 28, this 0.5.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode

from fl_platform.models.code import code_of


class Maxima(TorchFunctionMode):
    """Within it, max_pool2d of 2 x 2 pixels on the CPU is ``maxima``; in this thread, for passes without gradient."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is F.max_pool2d and not torch.compiler.is_compiling() and suits(*args, **(kwargs or {})):
            return maxima(args[0])
        return func(*args, **(kwargs or {}))


def maxima(x: Tensor) -> Tensor:
    """F.max_pool2d(x, 2); a last row or column without a neighbour is left out."""
    height, width = (side // 2 * 2 for side in x.shape[-2:])
    x = torch.maximum(x[..., 0:width:2], x[..., 1:width:2])
    return torch.maximum(x[..., 0:height:2, :], x[..., 1:height:2, :])


def suits(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> bool:
    """Tell whether ``maxima`` computes this layer; a user's model may hold layers of any kind."""
    return (
        type(x) is Tensor
        and code_of(x) == "cpu"
        and x.layout == torch.strided
        and x.is_floating_point()
        and not x.requires_grad
        and not is_functorch_wrapped_tensor(x)
        and x.dim() in (3, 4)
        and min(x.shape[-2:]) >= 2
        and is_all(kernel_size, 2)
        and (stride is None or is_all(stride, 2))
        and is_all(padding, 0)
        and is_all(dilation, 1)
        and not ceil_mode
        and not return_indices
    )


def is_all(sizes: Any, size: int) -> bool:
    """Tell whether an argument, one number or one for each direction, is this size everywhere."""
    return all(one == size for one in (sizes if isinstance(sizes, Sequence) else [sizes]))
