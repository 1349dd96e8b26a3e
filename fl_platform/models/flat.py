"""An nn.Module as one flat vector (d,), stacks of them (S, d), and where each tensor sits."""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

Vector = Tensor  # (d,)
Stack = Tensor  # (S, d), one row per worker of the cohort


@dataclass(frozen=True)
class Layout:
    """Names and shapes of tensors laid end to end."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    @property
    def dim(self) -> int:
        return sum(self.sizes)

    @property
    def segments(self) -> list[tuple[int, int]]:
        """(start, stop) of each tensor."""
        stops = list(accumulate(self.sizes))
        return list(zip([0, *stops[:-1]], stops, strict=True)) if stops else []

    def views(self, flat: Tensor) -> list[Tensor]:
        """(..., d) -> one (..., *shape) view per tensor."""
        pieces = flat.split_with_sizes(self.sizes, dim=-1)
        return [piece.view(*flat.shape[:-1], *shape) for piece, shape in zip(pieces, self.shapes, strict=True)]


class Binding:
    """Puts tensors into a module's parameter and buffer slots, so that its forward reads them.

    The slots hold whatever was bound last (views of a flat vector, traced or batched tensors); binding costs a
    dictionary assignment per tensor, far less than torch.func.functional_call.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = list(named_slots(module, "_parameters"))
        buffers = list(named_slots(module, "_buffers"))
        self.parameters = Layout(tuple(n for n, _, _ in parameters), tuple(s[k].shape for _, s, k in parameters))
        self.buffers = Layout(tuple(n for n, _, _ in buffers), tuple(s[k].shape for _, s, k in buffers))
        self._parameter_slots = [(slots, key) for _, slots, key in parameters]
        self._buffer_slots = [(slots, key) for _, slots, key in buffers]
        self._constant_slots = [
            (child._buffers, key)
            for child in module.modules()
            for key, value in child._buffers.items()
            if value is not None and not value.is_floating_point()
        ]

    def bind(self, parameters: list[Tensor], buffers: list[Tensor]) -> None:
        for (slots, key), value in zip(self._parameter_slots, parameters, strict=True):
            slots[key] = value
        for (slots, key), value in zip(self._buffer_slots, buffers, strict=True):
            slots[key] = value

    def move_constants(self, device: torch.device) -> None:
        """Put the integer and boolean buffers, which no worker changes, on the device of what is bound."""
        for slots, key in self._constant_slots:
            value = slots[key]
            assert value is not None
            slots[key] = value.to(device)

    def read(self) -> tuple[Vector, Vector]:
        """The bound parameters and buffers as flat copies."""
        return flatten([s[k] for s, k in self._parameter_slots]), flatten([s[k] for s, k in self._buffer_slots])


def named_slots(module: nn.Module, kind: str) -> list[tuple[str, dict[str, Tensor], str]]:
    """(dotted name, the owning module's dictionary, key) of each floating-point tensor, each tensor once."""
    seen: set[int] = set()
    found = []
    for prefix, child in module.named_modules():
        for key, value in getattr(child, kind).items():
            if value is not None and value.is_complex():
                raise ValueError(f"'{f'{prefix}.{key}'.lstrip('.')}' is complex; only real tensors are supported")
            if value is None or not value.is_floating_point():
                continue
            if id(value) in seen:
                raise ValueError(
                    f"'{prefix}.{key}' shares its tensor with another module; tied weights are not supported"
                )
            seen.add(id(value))
            found.append((f"{prefix}.{key}".lstrip("."), getattr(child, kind), key))
    return found


def flatten(tensors: list[Tensor]) -> Vector:
    """All tensors as one vector, without gradients."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]) if tensors else torch.zeros(0)
