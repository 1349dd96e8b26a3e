"""Local training of a whole cohort: one worker after another, in chunks, on several threads, over all ranks."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TypeVar

import torch

from fl_platform.engines.ranks import Ranks
from fl_platform.engines.records import Records
from fl_platform.engines.training import LocalTraining
from fl_platform.engines.work import LocalResult, LocalWork
from fl_platform.errors import UserError
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
        self.fitting: int | None = None  # workers that can be trained at once, once that is known
        self._idle: SimpleQueue[LocalTraining] = SimpleQueue()
        for training in trainings:
            self._idle.put(training)
        self._threads = (
            ThreadPoolExecutor(self.size, "training", torch.set_num_threads, (1,)) if self.size > 1 else None
        )

    def map(self, piece: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
        """The piece of every item, in their order."""
        return list(self._threads.map(piece, items) if self._threads else map(piece, items))

    @contextmanager
    def borrowed(self) -> Iterator[LocalTraining]:
        """One that nobody else uses meanwhile."""
        training = self._idle.get()
        try:
            yield training
        finally:
            self._idle.put(training)

    def train(self, work: LocalWork, result: LocalResult, rows: slice) -> Records:
        """Train some of the workers on whichever thread calls; writes their rows of the result."""
        with self.borrowed() as training:
            return training.train(work.part(rows), result, rows)


def train_in_chunks(pool: TrainingPool, work: LocalWork, result: LocalResult, share: slice, chunk: int | None) -> None:
    """Train the workers of ``share`` one chunk after another, of a length that fits the device.

    Without a configured length, the first worker on CUDA is trained alone: what it takes says how many fit. Where
    memory runs out all the same, the length is halved, for the rounds to come as well. Raises UserError where it does
    not suffice for one worker.
    """
    device, done = result.delta.device, share.start
    fitting = pool.fitting or chunk
    while done < share.stop:
        is_probe = fitting is None and device.type == "cuda"
        rows = slice(done, min(done + (1 if is_probe else fitting or len(work.workers)), share.stop))
        before = 0
        if is_probe:
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
        try:
            result.records.extend(pool.train(work, result, rows))
        except torch.OutOfMemoryError:
            length = rows.stop - rows.start
            if length == 1:
                raise UserError(
                    f"the memory of {device} does not suffice to train one worker; use a smaller batch_size or model, "
                    "state.device=cpu, or algorithm.memory_device=cpu where there is a gradient memory"
                ) from None
            pool.fitting = fitting = length // 2
            print(f"out of memory: {fitting} workers at once from here on (cohort_chunk was {length})", file=sys.stderr)
            torch.cuda.empty_cache()
            continue
        if is_probe:
            pool.fitting = fitting = workers_that_fit(
                torch.cuda.max_memory_allocated(device) - before, *torch.cuda.mem_get_info(device)
            )
        done = rows.stop


def workers_that_fit(one: int, free: int, total: int) -> int:
    """How many workers can be trained at once: ``one`` takes that many bytes, of ``free``; a tenth of all is left."""
    return max(1, (free - total // 10) // max(1, one))


def train_cohort(
    pool: TrainingPool, work: LocalWork, widths: Mapping[str, int], chunk: int | None, ranks: Ranks
) -> LocalResult:
    """Train every worker, ``chunk`` at a time; ``widths`` are the lengths of what each keeps and sends."""
    result = LocalResult.empty(work, widths, pool.memory)
    share = ranks.share(len(work.workers))
    if pool.size > 1:  # on a CPU, where memory does not run out with an exception
        step = chunk or len(work.workers)
        pieces = [slice(start, min(start + step, share.stop)) for start in range(share.start, share.stop, step)]
        for records in pool.map(lambda rows: pool.train(work, result, rows), pieces):
            result.records.extend(records)
    else:
        train_in_chunks(pool, work, result, share, chunk)
    if ranks.size > 1:
        gather(result, ranks)
    return result


def gather(result: LocalResult, ranks: Ranks) -> None:
    """Every rank's rows on every rank."""
    for stack in result.stacks:
        ranks.exchange(stack)
    ranks.sum(torch.from_numpy(result.gradient_passes))  # zero for the workers of other ranks
    result.records = result.records.of_all(ranks)
