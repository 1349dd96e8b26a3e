"""Local training of a whole cohort: one worker after another, in chunks, on several threads, over all ranks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

import torch

from fl_platform.engines.ranks import Ranks
from fl_platform.engines.training import Job, LocalResult, LocalTraining, Records
from fl_platform.models.flat import Scratch

Item = TypeVar("Item")
Found = TypeVar("Found")


class Crew:
    """Threads of one process that compute independent pieces side by side.

    Each has a LocalTraining of its own and single-threaded kernels, so a piece has the same bits whoever computes it
    and however many there are.
    """

    def __init__(self, trainings: Sequence[LocalTraining]) -> None:
        self.size, self.scratch = len(trainings), Scratch()
        self._idle: SimpleQueue[LocalTraining] = SimpleQueue()
        for training in trainings:
            self._idle.put(training)
        self._threads = ThreadPoolExecutor(self.size, "crew", torch.set_num_threads, (1,)) if self.size > 1 else None

    def map(self, piece: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
        """The pieces in their order."""
        return list(self._threads.map(piece, items) if self._threads else map(piece, items))

    def train(self, job: Job, result: LocalResult, rows: slice) -> Records:
        training = self._idle.get()
        try:
            return training.train(job.part(rows), result, rows)
        finally:
            self._idle.put(training)


def train_cohort(crew: Crew, job: Job, widths: Mapping[str, int], chunk: int | None, ranks: Ranks) -> LocalResult:
    """Train every worker of the job, ``chunk`` at a time; ``widths`` are the lengths of what each keeps and sends."""
    result = LocalResult.for_job(job, widths, crew.scratch)
    share = ranks.share(len(job.workers))
    step = chunk or len(job.workers)
    pieces = [slice(start, min(start + step, share.stop)) for start in range(share.start, share.stop, step)]
    for records in crew.map(lambda rows: crew.train(job, result, rows), pieces):
        result.records.extend(records)
    if ranks.size > 1:
        gather(result, ranks)
    return result


def gather(result: LocalResult, ranks: Ranks) -> None:
    """Every rank's rows on every rank."""
    for stack in result.stacks:
        ranks.exchange(stack)
    records = Records()
    for found in ranks.collect(result.records):
        assert isinstance(found, Records)
        records.extend(found)
    result.records = records
