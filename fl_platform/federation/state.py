"""What workers keep between rounds: a row per worker that has been seen, allocated when it first reports."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from fl_platform.algorithms.base import Start
from fl_platform.engines.transfer import moved
from fl_platform.models.flat import Stack, Vector


class WorkerStates:
    """Named rows of each worker, gathered for a cohort before a round and scattered after it.

    Memory grows with the workers seen, not with N, one row at a time: no table is ever copied to a larger place. It may
    live on another device than training.
    """

    def __init__(self, starts: Mapping[str, Start], device: torch.device) -> None:
        self._starts = dict(starts)
        self._device = device
        self._rows: dict[str, dict[int, Vector]] = {}

    def gather(
        self, workers: np.ndarray, given: Mapping[Start, Vector], names: Collection[str] | None = None
    ) -> dict[str, Stack]:
        """(S, dim) for each of ``names``, or all; a worker never seen has its start: zeros, or what ``given`` holds."""
        gathered = {}
        for name, start in self._starts.items():
            if names is not None and name not in names:
                continue
            rows = self._rows.get(name, {})
            initial = torch.zeros_like(given[Start.GLOBAL_PARAMS]) if start is Start.ZEROS else given[start]
            device = initial.device
            stack = initial.expand(len(workers), -1)
            if any(worker in rows for worker in workers.tolist()):
                if not all(worker in rows for worker in workers.tolist()):
                    initial = moved(initial, self._device)
                stack = moved(torch.stack([rows.get(worker, initial) for worker in workers.tolist()]), device)
            gathered[name] = stack
        return gathered

    @property
    def workers(self) -> list[int]:
        """The workers that have been seen, in order."""
        return sorted({worker for rows in self._rows.values() for worker in rows})

    def scatter(self, workers: np.ndarray, values: Mapping[str, Stack]) -> None:
        """Copy a row per worker and name; the stack of a name travels between devices at once."""
        for name, stack in values.items():
            rows = self._rows.setdefault(name, {})
            for worker, row in zip(workers.tolist(), moved(stack.detach(), self._device), strict=True):
                if worker in rows:
                    rows[worker].copy_(row)
                else:
                    rows[worker] = row.clone()

    def state_dict(self) -> dict[str, Any]:
        """The rows themselves, to be written before the next round changes them."""
        return {
            name: {"workers": torch.tensor(list(rows), dtype=torch.int64), "rows": list(rows.values())}
            for name, rows in self._rows.items()
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._rows = {
            name: {
                worker: row.to(self._device, copy=True)
                for worker, row in zip(table["workers"].tolist(), table["rows"], strict=True)
            }
            for name, table in saved.items()
        }
