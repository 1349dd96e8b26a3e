"""Which tensors compiled functions may read as arrays of numbers, and what they multiply."""

from collections.abc import Container
from functools import cache

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad

from fl_platform.models.code import code_of


def is_array(part: Tensor, dtypes: Container[torch.dtype]) -> bool:
    """Tell whether a tensor is an array of such numbers in this machine's memory, and nothing of another kind."""
    return (
        type(part) in (Tensor, nn.Parameter)
        and part.dtype in dtypes
        and code_of(part) == "cpu"
        and part.layout == torch.strided
        and not is_functorch_wrapped_tensor(part)
        and not part.is_neg()
        and forward_ad.unpack_dual(part).tangent is None  # type: ignore[no-untyped-call]
    )


def is_saved_elsewhere() -> bool:
    """Tell whether what is saved for a gradient is seen by others, as by checkpoints: they run layers again, outside
    of a pass, and expect the same tensors."""
    return torch.is_grad_enabled() and torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def dtype_of_products() -> torch.dtype:
    """What float32 numbers are multiplied in."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32


@cache
def is_multiplied(dtype: torch.dtype) -> bool:
    """Tell whether vectors of AVX-512 multiply numbers of this type on this processor."""
    from fl_platform.kernels import machine_code

    has = {torch.float32: machine_code.LANES == 16, torch.bfloat16: machine_code.HAS_BFLOAT16}
    return has.get(dtype, False)
