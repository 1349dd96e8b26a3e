"""Local training of a whole cohort: one worker after another, in chunks, on several threads, over all ranks."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

import torch

from fl_platform.engines.device_memory import DeviceMemory, is_out_of_memory
from fl_platform.engines.ranks import Ranks, balanced_shares
from fl_platform.engines.records import Records
from fl_platform.engines.training import LocalTraining
from fl_platform.engines.work import LocalResult, LocalWork
from fl_platform.errors import OutOfMemory
from fl_platform.kernels.recycled import Recycler
from fl_platform.models.flat import Stack

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

    def train(self, work: LocalWork, result: LocalResult, are_whole: bool, rows: slice) -> Records:
        """Train some of the workers on whichever thread calls; writes their rows of the result."""
        with self.borrowed() as training:
            if are_whole:
                return training.train_whole(work, result, rows)
            return training.train(work.part(rows), result, rows)

    def survey(self, work: LocalWork, found: Stack, rows: slice) -> None:
        """Ask some of the workers for their survey on whichever thread calls; writes their rows."""
        with self.borrowed() as training:
            training.survey(work.part(rows), found, rows)

    def forget_graphs(self) -> None:
        """Drop captured gradients, whose shapes do not occur again."""
        with self.borrowed() as training:
            training.graphs.clear()


def in_chunks(
    pool: TrainingPool, piece: Callable[[slice], Found], work: LocalWork, share: slice, chunk: int | None
) -> list[Found]:
    """Compute ``piece`` of the workers of ``share`` one chunk after another, of a length that fits their device.

    Without a configured length, on a device that tells its memory, the first worker is trained alone before: what it
    takes says how many fit. Where memory runs out all the same, the length is halved, for the rounds to come as well.
    Raises OutOfMemory where it does not suffice for one worker.
    """
    device = work.global_params.device
    memory, found, done, fitting = DeviceMemory(device), list[Found](), share.start, pool.fitting or chunk
    while done < share.stop:
        is_probe = fitting is None and memory.is_told
        rows = slice(done, min(done + (1 if is_probe else fitting or share.stop), share.stop))
        counted, refusal = work.gradient_passes.copy(), None
        try:
            if is_probe:  # what it finds is computed again with the others
                taken = memory.measured(partial(piece, rows))[1]
                pool.forget_graphs()
                pool.fitting = fitting = workers_that_fit(taken, memory.free, memory.total)
            else:
                found.append(piece(rows))
                done = rows.stop
                continue
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            refusal = " ".join(str(error).split())
        work.gradient_passes[:] = counted
        if refusal is not None:
            pool.forget_graphs()  # of longer stacks, which keep memory of their own
            memory.release()  # here: while the error was handled, its frames held the tensors of the piece
            pool.fitting = fitting = halved(rows.stop - rows.start, device, refusal)
    return found


def halved(length: int, device: torch.device, refusal: str) -> int:
    """Half as many workers as did not fit, with a line on stderr; OutOfMemory where it was one."""
    if length == 1:
        raise OutOfMemory(
            f"the memory of {device} does not suffice to train one worker; use a smaller batch_size or model, "
            f"state.device=cpu, or algorithm.memory_device=cpu where there is a gradient memory ({refusal})"
        )
    print(f"out of memory: {length // 2} workers at once from here on (cohort_chunk was {length})", file=sys.stderr)
    return length // 2


def workers_that_fit(one: int, free: int, total: int) -> int:
    """How many workers can be trained at once: ``one`` takes that many bytes, of ``free``; a tenth of all is left."""
    return max(1, (free - total // 10) // max(1, one))


def train_cohort(
    pool: TrainingPool, work: LocalWork, widths: Mapping[str, int], chunk: int | None, ranks: Ranks
) -> LocalResult:
    """Train every worker, ``chunk`` at a time; ``widths`` are the lengths of what each keeps and sends."""
    result = LocalResult.empty(work, widths, pool.memory)
    with pool.borrowed() as training:
        are_whole = training.takes_whole_workers(work, result)
    if are_whole and pool.size == 1:
        chunk = None  # the kernel takes one after another
    for records in pieces_of(pool, partial(pool.train, work, result, are_whole), work, chunk, ranks):
        result.records.extend(records)
    if ranks.size > 1:
        gather(result, ranks, shares_of(work, ranks))
    return result


def survey_cohort(pool: TrainingPool, work: LocalWork, chunk: int | None, ranks: Ranks) -> Stack:
    """(S, d): what every worker reports before it trains, on every rank."""
    found = work.global_params.new_empty(len(work.workers), work.global_params.numel())
    pieces_of(pool, lambda rows: pool.survey(work, found, rows), work, chunk, ranks)
    if ranks.size > 1:
        ranks.exchange(found, shares_of(work, ranks))
    return found


def shares_of(work: LocalWork, ranks: Ranks) -> list[slice]:
    """The workers that each rank trains: neighbours in the order of the work, about as many steps for every rank."""
    return balanced_shares(ranks.size, work.plan.steps.tolist())


def pieces_of(
    pool: TrainingPool, piece: Callable[[slice], Found], work: LocalWork, chunk: int | None, ranks: Ranks
) -> list[Found]:
    """``piece`` of this rank's workers, ``chunk`` at a time: on all threads, or one after another."""
    share = shares_of(work, ranks)[ranks.rank]
    if pool.size > 1:  # on a CPU, where memory does not run out with an exception
        step = chunk or len(work.workers)
        pieces = [slice(start, min(start + step, share.stop)) for start in range(share.start, share.stop, step)]
        return pool.map(piece, pieces)
    return in_chunks(pool, piece, work, share, chunk)


def gather(result: LocalResult, ranks: Ranks, shares: list[slice]) -> None:
    """Every rank's rows on every rank."""
    for stack in result.stacks:
        ranks.exchange(stack, shares)
    ranks.sum(torch.from_numpy(result.gradient_passes))  # zero for the workers of other ranks
    result.records = result.records.of_all(ranks)
