"""A second device for machines that have only a CPU: real values, placement rules and counts, no speed.

PyTorch keeps one device type free for backends outside its source tree (PrivateUse1). It is filled here from Python:
a tensor on ``simulated:K`` keeps its values in a CPU tensor, and every operator on it arrives at
``DeviceTensor.__torch_dispatch__``. There the rules of CUDA are applied: operands on two devices are refused, but for
scalars; and what a GPU would do is counted, each with the source line that asked for it:

- kernels: operator calls that compute something (views and allocations do not),
- reads: the host waits for the device (``item``, ``cpu``, a shape that depends on values),
- copies: values go from the host to the device.

Within ``limited_memory`` the device has so many bytes, tells how many are free, and raises what CUDA does beyond them.

Not simulated: time, streams and pinned memory, NCCL, the arithmetic of cuDNN and cuBLAS, scratch memory of kernels.
Importing this module registers the device for the whole process.
"""

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "simulated"
DEVICE_COUNT = 2
PACKAGE = "fl_platform"

CPU = torch.device("cpu")
MOVES = {"copy_", "_to_copy"}
INDEXING = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"}
NO_KERNEL = {"_unsafe_view", "_local_scalar_dense", "empty_like", "new_empty", "new_empty_strided"}
WAITING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
CHECKED = {"_linalg_check_errors"}  # read an error code although their result depends on no value


@dataclass
class Counts:
    """What a piece of work asked of the device: (operator, source line) -> how often."""

    kernels: Counter[tuple[str, str]] = field(default_factory=Counter)
    reads: Counter[tuple[str, str]] = field(default_factory=Counter)
    copies: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def totals(self) -> tuple[int, int, int]:
        """Numbers of kernels, host reads and host-to-device copies."""
        return self.kernels.total(), self.reads.total(), self.copies.total()


_open: list[Counts] = []


@contextmanager
def counting(counts: Counts | None = None) -> Iterator[Counts]:
    """Count what the block does, into the given counts or new ones."""
    counts = Counts() if counts is None else counts
    _open.append(counts)
    try:
        yield counts
    finally:
        _open.remove(counts)


def device(index: int = 0) -> torch.device:
    return torch.device(NAME, index)


def _count(kind: str, operator: str) -> None:
    if _recording is not None and kind != "kernels":
        raise RuntimeError(f"{operator}: values cannot go between host and device while a graph is captured")
    if _open:
        entry = operator, _source_line()
        for counts in _open:
            getattr(counts, kind)[entry] += 1


def _source_line() -> str:
    """The innermost line of the package on the stack; autograd's own thread has none."""
    frame = sys._getframe(2)
    while frame is not None:
        _, inside, path = frame.f_code.co_filename.rpartition(f"/{PACKAGE}/")
        if inside:
            return f"{path}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "backward or a test"


_recording: Any = None


class Recording:
    """Operator calls of a block, to be repeated with the values that their operands have by then: a captured graph."""

    def __init__(self) -> None:
        self._calls: list[tuple[Any, Any, Any, Any]] = []

    def note(self, name: str, operator: Any, args: Any, kwargs: Any, found: Any) -> None:
        self._calls.append((operator, args, kwargs, found))

    def replay(self) -> None:
        """Repeat the calls; what they make is written to where it was made when they were recorded."""
        _count("kernels", "graph")
        for operator, args, kwargs, found in self._calls:
            given = {tensor.untyped_storage().data_ptr() for tensor in _tensors((args, list(kwargs.values())))}
            again = operator(*args, **kwargs)
            for old, new in zip(_tensors(found), _tensors(again), strict=True):
                if old.untyped_storage().data_ptr() not in given:  # neither a view nor written in place
                    old.copy_(new)


def capture(work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """What ``kernels.graphs.capture_cuda`` does on CUDA: returns (replay, what the work returned)."""
    global _recording
    work()
    _recording = Recording()
    try:
        found = work()
        return _recording.replay, found
    finally:
        _recording = None


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _each_tensor(lambda tensor: found.append(tensor) or tensor, value)  # type: ignore[func-returns-value]
    return found


class _Backend(_DummyBackendModule):
    """What PyTorch asks of the module ``torch.simulated``."""

    def device_count(self) -> int:
        return DEVICE_COUNT

    def get_rng_state(self, device: object = None) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


_backend = _Backend()
_setup_privateuseone_for_python_backend(NAME, backend_module=_backend)


class Memory:
    """Bytes of the tensors that were made within the block, as torch.cuda tells them; no allocator keeps any back."""

    TOLD = (
        "memory_allocated", "memory_reserved", "max_memory_allocated", "reset_peak_memory_stats", "mem_get_info",
        "empty_cache",
    )  # fmt: skip

    def __init__(self, capacity: int) -> None:
        self.capacity, self.live, self.peak = capacity, 0, 0
        self.refusals = 0
        self._known: set[int] = set()

    def take(self, values: Tensor) -> None:
        """Count the storage of a new tensor; raises torch.OutOfMemoryError where it does not fit."""
        storage = values.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        if self.live + size > self.capacity:
            self.refusals += 1
            raise torch.OutOfMemoryError(f"simulated out of memory. Tried to allocate {size} bytes")
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, key, size).atexit = False

    def _release(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size

    def memory_allocated(self, device: object = None) -> int:
        return self.live

    memory_reserved = memory_allocated

    def max_memory_allocated(self, device: object = None) -> int:
        return self.peak

    def reset_peak_memory_stats(self, device: object = None) -> None:
        self.peak = self.live

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        return self.capacity - self.live, self.capacity

    def empty_cache(self) -> None:
        """Nothing is kept back."""


_memory: Memory | None = None


@contextmanager
def limited_memory(capacity: int) -> Iterator[Memory]:
    """Give the device so many bytes for the tensors that the block makes.

    What is alive when does not depend on chance: Python collects no cycles meanwhile, which hold tensors, and gradients
    are computed on the calling thread, not on one of the device that drops its last tensors a little later.
    """
    global _memory
    gc.collect()
    gc.disable()
    memory = _memory = Memory(capacity)
    for name in Memory.TOLD:
        setattr(_backend, name, getattr(memory, name))
    try:
        with torch.autograd.set_multithreading_enabled(False):
            yield memory
    finally:
        gc.enable()
        _memory = None
        for name in Memory.TOLD:
            delattr(_backend, name)


class DeviceTensor(torch.Tensor):
    """A tensor of the device; its values are in the CPU tensor ``held``."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor, device: torch.device) -> "DeviceTensor":
        if _memory is not None:
            _memory.take(held)
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=device,
        )
        tensor.held = held
        return tensor

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kind, kwargs, tensors = _kind(operator), dict(kwargs or {}), list[Tensor]()

        def values(tensor: Tensor) -> Tensor:
            tensors.append(tensor)
            return tensor.held if isinstance(tensor, DeviceTensor) else tensor

        held_args, held_kwargs = _each_tensor(values, args), {k: _each_tensor(values, v) for k, v in kwargs.items()}
        target = _move(kind.name, args, kwargs) if kind.name in MOVES else _common_device(kind, tensors)
        if kind.name not in MOVES:
            _tally(kind, args)
        if kwargs.get("device") is not None:
            held_kwargs["device"] = CPU
        operator = FUSED.get(operator, operator)
        found = operator(*held_args, **held_kwargs)
        if _recording is not None:
            _recording.note(kind.name, operator, held_args, held_kwargs, found)
        if kind.changes_shape:  # of the wrapper as of its values
            return return_and_correct_aliasing(operator, args, kwargs, args[0])
        operands = {id(tensor.held): tensor for tensor in tensors if isinstance(tensor, DeviceTensor)}
        _refuse_resizing(operator, operands.values())

        def returned(result: Tensor) -> Tensor:
            """The operand itself where the operator wrote into one, else a new tensor of the device."""
            if id(result) in operands:
                return operands[id(result)]
            return DeviceTensor(result, target) if target.type == NAME else result

        return _each_tensor(returned, found)

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"DeviceTensor({tuple(self.shape)}, {self.dtype}, {self.device})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"can't convert a tensor of {self.device} to numpy; use Tensor.cpu() first")

    __array__ = numpy

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved as torch.load(map_location="cpu") would restore it; pickled, as between ranks, it keeps its device."""
        values = self.held.detach()
        return values.__reduce_ex__(protocol) if _is_saving() else (_unpickled, (values.clone(), str(self.device)))


@dataclass(frozen=True)
class _Kind:
    """What there is to know about an operator."""

    name: str
    has_kernel: bool
    waits: bool
    is_pointwise: bool
    changes_shape: bool


@cache
def _kind(operator: Any) -> _Kind:
    name = operator._schema.name.partition("::")[2]
    is_view = any(part.alias_info is not None and not part.alias_info.is_write for part in operator._schema.returns)
    return _Kind(
        name=name,
        has_kernel=not is_view and name not in NO_KERNEL,
        waits=name not in INDEXING and (bool(WAITING & set(operator.tags)) or name in CHECKED),
        is_pointwise=torch.Tag.pointwise in operator.tags or name.startswith(("index", "fill")),
        changes_shape=torch.Tag.inplace_view in operator.tags,
    )


def _each_tensor(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The value, a tensor or (lists and tuples of) anything, with the function applied to its tensors."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, list | tuple):
        return type(value)([_each_tensor(function, part) for part in value])
    return value


def _unpickled(values: Tensor, device: str) -> DeviceTensor:
    return DeviceTensor(values, torch.device(device))


def _is_saving() -> bool:
    """Whether torch.save is on the stack."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "save" and frame.f_globals.get("__name__") == "torch.serialization":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _move(name: str, args: Any, kwargs: Any) -> torch.device:
    """Count a copy between devices, or a kernel within one; returns where the result is."""
    if name == "copy_":
        target, source = args[0].device, args[1].device
    else:
        source = args[0].device
        target = torch.device(kwargs["device"]) if kwargs.get("device") is not None else source
    if target == source:
        _count("kernels", name)
    elif target.type == NAME:
        _count("copies" if source == CPU else "kernels", name)
    else:
        _count("reads", name)
    return target


def _tally(kind: _Kind, args: Any) -> None:
    """Count what an operator within the device does."""
    waits = kind.waits
    if kind.name in INDEXING:  # an index of booleans is turned into positions, whose number the host must know
        indices = [index for index in args[1] if isinstance(index, Tensor)]
        waits = any(index.dtype in (torch.bool, torch.uint8) for index in indices)
        for _ in [index for index in indices if index.device == CPU]:
            _count("copies", f"{kind.name} with an index of the host")
    if waits:
        _count("reads", kind.name)
    if kind.has_kernel:
        _count("kernels", kind.name)


def _common_device(kind: _Kind, tensors: list[Tensor]) -> torch.device:
    """The one device of an operator's tensors.

    Raises RuntimeError as CUDA does where there are two. Scalars of the host are passed to pointwise kernels by value,
    and indices of the host are copied.
    """
    found = set()
    for tensor in tensors:
        is_scalar = kind.is_pointwise and tensor.dim() == 0
        is_index = kind.name in INDEXING and not tensor.is_floating_point()
        if isinstance(tensor, DeviceTensor) or not (is_scalar or is_index):
            found.add(tensor.device)
    if len(found) > 1:
        listed = ", ".join(sorted(map(str, found)))
        raise RuntimeError(f"{kind.name}: expected all tensors to be on the same device, found {listed}")
    return found.pop()


def _refuse_resizing(operator: Any, tensors: Any) -> None:
    for tensor in tensors:
        if tensor.shape != tensor.held.shape:
            raise RuntimeError(f"{operator} changed the shape of an operand, which the simulated device cannot follow")


def _gru_cell(
    of_input: Tensor, of_hidden: Tensor, hidden: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The fused cell of a GRU, which a CPU does not have: the new state, and what its gradient needs."""
    with_biases = (
        gates if bias is None else gates + bias for gates, bias in ((of_input, input_bias), (of_hidden, hidden_bias))
    )
    (r_in, z_in, n_in), (r_hid, z_hid, n_hid) = (gates.chunk(3, 1) for gates in with_biases)
    reset, update = torch.sigmoid(r_in + r_hid), torch.sigmoid(z_in + z_hid)
    candidate = torch.tanh(n_in + reset * n_hid)
    return candidate + update * (hidden - candidate), torch.cat([reset, update, candidate, hidden, n_hid], 1)


def _gru_cell_backward(gradient: Tensor, kept: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    """Gradients of the gates of input and hidden state, of the state before, and of both biases."""
    reset, update, candidate, hidden, n_hid = kept.chunk(5, 1)
    of_update = gradient * (hidden - candidate) * update * (1 - update)
    of_candidate = gradient * (1 - update) * (1 - candidate.square())
    of_reset = of_candidate * n_hid * reset * (1 - reset)
    of_input = torch.cat([of_reset, of_update, of_candidate], 1)
    of_hidden = torch.cat([of_reset, of_update, of_candidate * reset], 1)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (None, None)
    return of_input, of_hidden, gradient * update, *biases


FUSED: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._thnn_fused_gru_cell.default: _gru_cell,
    torch.ops.aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward,
}
"""Operators that devices have and the CPU does not."""


# What PyTorch calls below the dispatch to Python: allocation, filling from Python lists, and those factories
# that would allocate nothing and resize.


def _empty(size: Any, *, dtype: Any = None, device: Any, memory_format: Any = None, **_: Any) -> DeviceTensor:
    values = torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format)
    return DeviceTensor(values, device)


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, device: Any, **_: Any) -> DeviceTensor:
    return DeviceTensor(torch.empty_strided(size, stride, dtype=dtype), device)


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    _move("copy_", (target, source), {})
    values, place = (tensor.held if isinstance(tensor, DeviceTensor) else tensor for tensor in (source, target))
    place.copy_(values)
    if _recording is not None:
        _recording.note("copy_", torch.ops.aten.copy_.default, (place, values), {}, place)
    return target


def _factory(operator: Any) -> Callable[..., DeviceTensor]:
    def make(*args: Any, device: Any, dtype: Any = None, **_: Any) -> DeviceTensor:
        _count("kernels", operator._schema.name.partition("::")[2])
        return DeviceTensor(operator(*args, dtype=dtype, device=CPU), device)

    return make


_library = torch.library.Library("aten", "IMPL")
_library.impl("empty.memory_format", _empty, "PrivateUse1")
_library.impl("empty_strided", _empty_strided, "PrivateUse1")
_library.impl("_copy_from", _copy_from, "PrivateUse1")
for _operator in (
    torch.ops.aten.arange.default,
    torch.ops.aten.arange.start,
    torch.ops.aten.arange.start_step,
    torch.ops.aten.eye.default,
    torch.ops.aten.eye.m,
):
    _library.impl(_operator, _factory(_operator), "PrivateUse1")

_autocast = torch.library.Library("_", "IMPL")  # autocast changes nothing here: products stay as they are
_autocast.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
