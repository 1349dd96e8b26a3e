"""Processes that share a federation: each trains its part of the cohort, all hold the same server."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """This process among ``size``; a single process neither needs nor touches torch.distributed."""

    rank: int = 0
    size: int = 1

    def share(self, count: int) -> slice:
        """The consecutive rows of ``count`` that are this rank's."""
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def exchange(self, stack: Tensor) -> None:
        """Every rank's share of the rows on every rank, in place: each row travels once."""
        shares = [stack[Ranks(source, self.size).share(len(stack))] for source in range(self.size)]
        works = [
            torch.distributed.broadcast(rows, source, async_op=True)
            for source, rows in enumerate(shares)
            if rows.numel()
        ]
        for work in works:
            work.wait()

    def sum(self, tensor: Tensor) -> Tensor:
        """The tensor summed over ranks, in place."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def whole(self, part: Tensor, count: int) -> Tensor:
        """All ranks' shares of ``count`` rows in their places."""
        if self.size == 1:
            return part
        full = part.new_empty(count, *part.shape[1:])
        full[self.share(count)] = part
        self.exchange(full)
        return full

    def collect(self, value: object) -> list[object]:
        """Every rank's (small) object, in rank order."""
        if self.size == 1:
            return [value]
        collected: list[object] = [None] * self.size
        torch.distributed.all_gather_object(collected, value)
        return collected

    @staticmethod
    def leave() -> None:
        """End the process group once every rank is here: its threads abort a process that exits before them."""
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()

    @property
    def reduce(self) -> Callable[[Tensor], Tensor] | None:
        """``sum`` where there is something to sum."""
        return self.sum if self.size > 1 else None
