"""Processes that share a federation: each trains its part of the cohort, all hold the same server."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed
import torch.distributed.nn.functional  # before a group is made: the one there is stays in its defaults for good
from torch import Tensor

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Ranks:
    """This process among ``size``; a single process neither needs nor touches torch.distributed.

    ``device`` is where this rank trains. Only tensors of that device are exchanged: NCCL knows no others, so those that
    live elsewhere (``algorithm.memory_device=cpu``) pass through it.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    def share(self, count: int) -> slice:
        """The consecutive rows of ``count`` that are this rank's."""
        return share_of(self.rank, self.size, count)

    def exchange(self, stack: Tensor, shares: Sequence[slice] | None = None) -> None:
        """Every rank's share of the rows on every rank, in place: each row travels once.

        ``shares`` are the ranks' rows, by rank; those of ``share`` unless given.
        """
        shares = shares or [share_of(source, self.size, len(stack)) for source in range(self.size)]
        self._broadcast([stack[rows] for rows in shares])

    def _broadcast(self, pieces: Sequence[Tensor]) -> None:
        """A piece from every rank to all others, in place."""
        sent = [piece.contiguous().to(self.device) for piece in pieces]
        works = [
            torch.distributed.broadcast(tensor, source, async_op=True)
            for source, tensor in enumerate(sent)
            if tensor.numel()
        ]
        for work in works:
            work.wait()
        for piece, tensor in zip(pieces, sent, strict=True):
            if tensor is not piece:
                piece.copy_(tensor)

    def sum(self, tensor: Tensor) -> Tensor:
        """The tensor summed over ranks, in place."""
        if self.size > 1:
            sent = tensor.to(self.device)
            torch.distributed.all_reduce(sent)
            if sent is not tensor:
                tensor.copy_(sent)
        return tensor

    def whole(self, part: Tensor, count: int) -> Tensor:
        """All ranks' shares of ``count`` rows in their places."""
        if self.size == 1:
            return part
        full = part.new_empty(count, *part.shape[1:])
        full[self.share(count)] = part
        self.exchange(full)
        return full

    def concatenated(self, part: Tensor, lengths: Sequence[int]) -> Tensor:
        """All ranks' vectors one after another; ``lengths`` are theirs, by rank."""
        full = part.new_empty(sum(lengths))
        pieces = list(full.split_with_sizes(list(lengths)))
        pieces[self.rank].copy_(part)
        self._broadcast(pieces)
        return full

    def collect(self, value: Any) -> list[Any]:
        """Every rank's (small) object without tensors, in rank order."""
        if self.size == 1:
            return [value]
        collected: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(collected, value)
        return collected

    @staticmethod
    def leave() -> None:
        """End the process group, and its threads, once every rank is here.

        Gloo's threads release the tensors of their last work on their own. One that does so while the interpreter
        is being finalised aborts the process, after its result was saved. They are joined when the last reference to
        the group is gone, and the wrapper of an earlier Trainer, which is part of a reference cycle, may hold one.
        """
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()
            gc.collect()

    @property
    def reduce(self) -> Callable[[Tensor], Tensor] | None:
        """``sum`` where there is something to sum."""
        return self.sum if self.size > 1 else None


def share_of(rank: int, size: int, count: int) -> slice:
    """The consecutive rows of ``count`` that belong to one of ``size`` ranks."""
    return slice(rank * count // size, (rank + 1) * count // size)


def balanced_shares(size: int, steps: Sequence[int]) -> list[slice]:
    """Consecutive rows for each of ``size`` ranks, so that the sums of their steps are about equal.

    Each border lies where the steps before it come nearest to its part of all. Rows with equal steps are shared as
    ``share_of`` does.
    """
    if len(set(steps)) <= 1:
        return [share_of(rank, size, len(steps)) for rank in range(size)]
    before = [0, *accumulate(steps)]

    def border(rank: int) -> int:
        return min(range(len(before)), key=lambda row: abs(before[row] * size - rank * before[-1]))

    borders = [border(rank) for rank in range(size)]
    return [slice(first, last) for first, last in pairwise([*borders, len(steps)])]
