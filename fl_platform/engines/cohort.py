"""Local training of a whole cohort: one worker after another, in chunks, on several threads, over all ranks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

import torch

from fl_platform.engines.ranks import Ranks
from fl_platform.engines.training import LocalResult, LocalTraining, LocalWork, Records
from fl_platform.kernels.recycled import Recycler

Item = TypeVar("Item")
Found = TypeVar("Found")


class TrainingPool:
    """Threads of one process that compute independent pieces side by side.

    Each has a LocalTraining of its own and single-threaded kernels, so a piece has the same bits whichever thread
    computes it and however many there are. With one LocalTraining everything runs on the calling thread.
    """

    def __init__(self, trainings: Sequence[LocalTraining]) -> None:
        self.size, self.memory = len(trainings), Recycler()
        self._idle: SimpleQueue[LocalTraining] = SimpleQueue()
        for training in trainings:
            self._idle.put(training)
        self._threads = (
            ThreadPoolExecutor(self.size, "training", torch.set_num_threads, (1,)) if self.size > 1 else None
        )

    def map(self, piece: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
        """The piece of every item, in their order."""
        return list(self._threads.map(piece, items) if self._threads else map(piece, items))

    def train(self, work: LocalWork, result: LocalResult, rows: slice) -> Records:
        """Train some of the workers on whichever thread calls; writes their rows of the result."""
        training = self._idle.get()
        try:
            return training.train(work.part(rows), result, rows)
        finally:
            self._idle.put(training)


def train_cohort(
    pool: TrainingPool, work: LocalWork, widths: Mapping[str, int], chunk: int | None, ranks: Ranks
) -> LocalResult:
    """Train every worker, ``chunk`` at a time; ``widths`` are the lengths of what each keeps and sends."""
    result = LocalResult.empty(work, widths, pool.memory)
    share = ranks.share(len(work.workers))
    step = chunk or len(work.workers)
    pieces = [slice(start, min(start + step, share.stop)) for start in range(share.start, share.stop, step)]
    for records in pool.map(lambda rows: pool.train(work, result, rows), pieces):
        result.records.extend(records)
    if ranks.size > 1:
        gather(result, ranks)
    return result


def gather(result: LocalResult, ranks: Ranks) -> None:
    """Every rank's rows on every rank."""
    for stack in result.stacks:
        ranks.exchange(stack)
    result.records = result.records.of_all(ranks)
