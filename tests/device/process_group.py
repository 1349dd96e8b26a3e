"""A process group for the simulated device: as strict as NCCL about placement, carried by gloo.

Every rank is a process that sees one device, as Slurm arranges it with a GPU per task (autograd knows one device of
this kind per process). Collectives take contiguous tensors of the device only, and objects without tensors, which would
come back on the sender's device; values travel on the CPU. Importing this module registers the backend.
"""

import sys
from datetime import timedelta
from typing import Any

import torch.distributed
from torch import Tensor
from torch.distributed import ProcessGroup, ProcessGroupGloo

from tests.device import simulated
from tests.device.simulated import DeviceTensor


class SimulatedGroup(ProcessGroup):
    """Collectives of tensors on the device."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._gloo = ProcessGroupGloo(store, rank, size, timeout)

    def _values(self, tensors: Any) -> Any:
        if isinstance(tensors, list):
            return [self._values(tensor) for tensor in tensors]
        if tensors.device == simulated.CPU and _is_of_objects():  # NCCL is given these on its device
            return tensors
        if not isinstance(tensors, DeviceTensor) or tensors.device != simulated.device():
            raise RuntimeError(f"a collective of {simulated.device()} was given a tensor of {tensors.device}")
        if not tensors.is_contiguous():
            raise RuntimeError("tensors of a collective must be contiguous")
        return tensors.held.detach()

    def getBackendName(self) -> str:
        return simulated.NAME

    def broadcast(self, tensors: list[Tensor], options: Any) -> Any:
        return self._gloo.broadcast(self._values(tensors), options)

    def allreduce(self, tensors: list[Tensor], options: Any) -> Any:
        return self._gloo.allreduce(self._values(tensors), options)

    def allgather(self, found: list[list[Tensor]], tensors: list[Tensor], options: Any) -> Any:
        return self._gloo.allgather(self._values(found), self._values(tensors), options)

    def barrier(self, opts: Any = None) -> Any:
        return self._gloo.barrier()


def _is_of_objects() -> bool:
    """Whether a collective of Python objects, which torch sends as bytes, is on the stack."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in ("broadcast_object_list", "all_gather_object"):
            return frame.f_globals.get("__name__") == "torch.distributed.distributed_c10d"
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _pickled(tensor: DeviceTensor, protocol: Any) -> Any:
    if _is_of_objects():
        raise RuntimeError(
            "an object with a tensor was given to a collective: it would be restored on the sender's device"
        )
    return PLAIN(tensor, protocol)


PLAIN = DeviceTensor.__reduce_ex__
DeviceTensor.__reduce_ex__ = _pickled  # type: ignore[method-assign]
torch.distributed.Backend.register_backend(simulated.NAME, SimulatedGroup, devices=[simulated.NAME])
