"""What workers keep between rounds: a row per worker that has been seen, allocated when it first reports."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fl_platform.flat import Stack, Vector


class WorkerStates:
    """Named tables of rows, gathered for a cohort before a round and scattered after it.

    Memory grows with the workers seen, not with N, and may live on another device than training.
    """

    def __init__(self, defaults: Mapping[str, str], device: torch.device) -> None:
        self._defaults = dict(defaults)
        self._device = device
        self._rows: dict[int, int] = {}
        self._tables: dict[str, Tensor] = {}

    def gather(self, workers: np.ndarray, given: Mapping[str, Vector]) -> dict[str, Stack]:
        """(S, dim) per table; a worker never seen has the default: zeros, or the vector of that name in ``given``."""
        rows = [self._rows.get(int(worker), -1) for worker in workers]
        seen = torch.tensor([row >= 0 for row in rows])
        index = torch.tensor([max(row, 0) for row in rows])
        gathered = {}
        for name, default in self._defaults.items():
            like = given["global_params" if default == "zeros" else default]
            initial = torch.zeros_like(like) if default == "zeros" else like
            stack = initial.expand(len(rows), -1)
            if bool(seen.any()):
                saved = self._tables[name][index.to(self._device)].to(like.device)
                stack = torch.where(seen.to(like.device)[:, None], saved, stack)
            gathered[name] = stack
        return gathered

    def scatter(self, workers: np.ndarray, values: Mapping[str, Stack]) -> None:
        if not values:
            return
        for worker in workers:
            self._rows.setdefault(int(worker), len(self._rows))
        index = torch.tensor([self._rows[int(worker)] for worker in workers], device=self._device)
        for name, stack in values.items():
            table = self._grown(name, stack)
            table[index] = stack.detach().to(self._device)

    def _grown(self, name: str, like: Stack) -> Tensor:
        table = self._tables.get(name)
        if table is None or len(table) < len(self._rows):
            capacity = max(len(self._rows), 2 * len(table) if table is not None else 0)
            grown = torch.zeros(capacity, like.shape[1], dtype=like.dtype, device=self._device)
            if table is not None:
                grown[: len(table)] = table
            self._tables[name] = table = grown
        return table

    def state_dict(self) -> dict[str, Any]:
        used = len(self._rows)
        return {
            "workers": torch.tensor(list(self._rows), dtype=torch.int64),
            "tables": {name: table[:used].clone() for name, table in self._tables.items()},
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._rows = {int(worker): row for row, worker in enumerate(saved["workers"])}
        self._tables = {name: table.to(self._device) for name, table in saved["tables"].items()}
