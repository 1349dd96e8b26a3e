"""Figures that worker hooks record while they train, and what becomes of them over steps, workers and ranks."""

import torch
from torch import Tensor

from fl_platform.engines.ranks import Ranks


class Records:
    """Figures recorded by worker hooks, reduced over steps and workers without touching the host."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, list[Tensor]]] = {}

    def record(self, name: str, values: Tensor, how: str = "mean") -> None:
        self._values.setdefault(name, (how, []))[1].append(values.detach().reshape(-1).double())

    def extend(self, other: "Records") -> None:
        for name, (how, values) in other._values.items():
            self._values.setdefault(name, (how, []))[1].extend(values)

    def of_all(self, ranks: Ranks) -> "Records":
        """The records of all ranks, in rank order. Names are exchanged as objects and values as tensors."""
        own = {name: (how, torch.cat(values).to(ranks.device)) for name, (how, values) in self._values.items()}
        found = ranks.collect({name: (how, len(values)) for name, (how, values) in own.items()})
        together = Records()
        for name, how in {name: how for names in found for name, (how, _) in names.items()}.items():
            _, values = own.get(name, (how, torch.empty(0, dtype=torch.float64, device=ranks.device)))
            lengths = [names.get(name, (how, 0))[1] for names in found]
            together._values[name] = (how, [ranks.concatenated(values, lengths)])
        return together

    def reduced(self) -> dict[str, Tensor]:
        """One number per name, still on the device."""
        return {name: getattr(torch, how)(torch.cat(values)) for name, (how, values) in self._values.items()}
