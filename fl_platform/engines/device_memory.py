"""The memory of a device that trains: what a piece of work takes, how much is free, and what counts as running out."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Found = TypeVar("Found")

CUDA_OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation: what CUDA itself reports, outside PyTorch's allocator."""
REFUSED = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "nable to find an engine to execute this computation",  # of cuDNN, which tries algorithms until its memory suffices
    "nable to find a valid cuDNN algorithm",
)
"""Parts of messages of errors that have no type of their own: of the host's memory, and of CUDA's libraries."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be had, on the host or on a device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, torch.AcceleratorError):
        return getattr(error, "error_code", None) == CUDA_OUT_OF_MEMORY
    return isinstance(error, RuntimeError) and any(part in str(error) for part in REFUSED)


class DeviceMemory:
    """What PyTorch's module of a type of device, such as torch.cuda, knows about the memory of one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module: Any = torch.get_device_module(device)

    @property
    def is_told(self) -> bool:
        """Whether the device tells how much of its memory is free; a CPU does not."""
        return hasattr(self._module, "mem_get_info")

    @property
    def free(self) -> int:
        """Bytes that can still be allocated: those of the device, and those that PyTorch keeps for its own use."""
        unused = self._module.memory_reserved(self._device) - self._module.memory_allocated(self._device)
        return int(self._module.mem_get_info(self._device)[0] + unused)

    @property
    def total(self) -> int:
        """Bytes of the device."""
        return int(self._module.mem_get_info(self._device)[1])

    def measured(self, work: Callable[[], Found]) -> tuple[Found, int]:
        """What the work returns, and the most bytes that it held beyond what was there before."""
        self._module.reset_peak_memory_stats(self._device)
        before = self._module.memory_allocated(self._device)
        found = work()
        return found, int(self._module.max_memory_allocated(self._device) - before)

    def release(self) -> None:
        """Give back what PyTorch keeps for its own use. Call it where no handled error holds tensors any more."""
        if self.is_told:
            self._module.empty_cache()
