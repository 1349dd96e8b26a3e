"""Counts the bytes of live tensors while a block runs: what an allocator of the device would have to hold."""

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the storages that operators make on a device within the block: now, and at most.

    Tensors that were there before do not count. Scratch memory inside a kernel is not seen, and no rounding of an
    allocator is added. Works on the meta device, whose tensors have a size and no values.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.live: int = 0
        self.peak: int = 0
        self._counted: set[int] = set()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = operator(*args, **(kwargs or {}))
        given = {storage._cdata for storage in self._storages((args, kwargs))}
        for storage in self._storages(found):
            key = storage._cdata
            if key not in given and key not in self._counted:  # neither a view nor written in place
                self._counted.add(key)
                self.live += storage.nbytes()
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._release, key, storage.nbytes()).atexit = False
        return found

    def _storages(self, values: Any) -> list[torch.UntypedStorage]:
        """The storages on the device of all tensors in nested values."""
        tensors = (value for value in tree_leaves(values) if isinstance(value, Tensor))
        return [tensor.untyped_storage() for tensor in tensors if tensor.device.type == self.device.type]

    def _release(self, key: int, size: int) -> None:
        self._counted.discard(key)
        self.live -= size
