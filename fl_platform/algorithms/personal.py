"""Models of which a part belongs to each worker: the part that FedPer, FedRep and FedBN share."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, Federation, LocalRun, LocalStart, Start, state
from fl_platform.errors import UserError
from fl_platform.models.flat import Stack, Vector


@dataclass(eq=False)
class PersonalPart(Algorithm):
    """Mix-in: some numbers of the model never leave a worker, which starts with those it ended with.

    A worker never seen starts with those of x_0, which the server keeps.
    """

    kind: ClassVar[str] = "both"
    group: ClassVar[str] = "personalised"

    is_personal: Tensor = state()  # (d,), of bool
    num_personal: int = state(lambda _: 0)

    def personal_tensors(self, federation: Federation) -> list[bool]:
        """For every tensor of the layout, whether it belongs to the workers."""
        raise NotImplementedError

    def prepare(self, federation: Federation) -> None:
        super().prepare(federation)
        sizes = federation.layout.sizes
        chosen = self.personal_tensors(federation)
        mask = [torch.full((size,), mine) for size, mine in zip(sizes, chosen, strict=True)]
        self.is_personal = torch.cat(mask).to(federation.device)
        self.num_personal = sum(size for size, mine in zip(sizes, chosen, strict=True) if mine)

    @property
    def private(self) -> Tensor | None:
        return self.is_personal if self.num_personal else None

    @property
    def num_private(self) -> int:
        return self.num_personal

    @property
    def keeps(self) -> dict[str, Start]:
        return {"personal": Start.GLOBAL_PARAMS}

    def start_local(self, start: LocalStart) -> tuple[Stack | Vector, Stack | Vector]:
        return torch.where(self.is_personal, start.state["personal"], start.global_params), start.buffers

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        return {"personal": run.params}


def last_layers(federation: Federation, count: int, key: str) -> list[bool]:
    """For every tensor, whether it lies in the last so many layers; normalisation counts with the layer before it."""
    names = federation.layout.names
    layers = list(dict.fromkeys(module_of(name) for name in names if name not in federation.norms))
    if count > len(layers):
        raise UserError(f"{key}={count} is not allowed; the model has {len(layers)} layers with parameters")
    if count == 0:
        return [False] * len(names)
    first = next(place for place, name in enumerate(names) if module_of(name) == layers[-count])
    return [place >= first for place in range(len(names))]


def module_of(name: str) -> str:
    """The module that a parameter belongs to, by its dotted name."""
    return name.rpartition(".")[0]
