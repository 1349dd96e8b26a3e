"""Persistent mini-batch streams: each worker continues in the next round where it stopped in the previous one."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_platform import seeding
from fl_platform.data.partition import Partition
from fl_platform.errors import UserError

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class BatchPlan:
    """Which samples each worker of a cohort sees at each step.

    ``indices`` [steps, S, B] is padded with 0 behind the first ``counts`` [steps, S] of each batch; B is the
    largest count of the plan. Worker i takes the first ``steps[i]`` steps; its later batches are empty.
    """

    indices: Indices
    counts: Indices
    steps: Indices

    @property
    def active(self) -> Indices:
        """Number of workers that take each step."""
        takes_step = np.arange(len(self.counts))[:, None] < self.steps
        return np.asarray(takes_step.sum(axis=1), np.int64)

    def part(self, rows: slice) -> "BatchPlan":
        """The plan of some of the workers, without steps that none of them takes."""
        steps = self.steps[rows]
        last = steps.max(initial=0)
        return BatchPlan(self.indices[:last, rows], self.counts[:last, rows], steps)


class BatchStreams:
    """Per worker, permutations cut into consecutive batches; a last batch of one sample is dropped (BatchNorm).

    A worker with at most a batch of samples uses all of them at every step. The permutation of a pass comes from
    its own named random stream, so the state of a worker is one number: how many batches it has drawn.
    """

    def __init__(self, partition: Partition, batch_size: int, seed: int) -> None:
        self.partition = partition
        self._batch_size = batch_size
        self._shuffle = _Shuffle(seed)
        self._drawn: dict[int, int] = {}
        self._orders: dict[int, tuple[int, Indices]] = {}  # worker -> (pass, its samples in the order of that pass)

    def per_pass(self, workers: Indices) -> Indices:
        """Number of batches in which each worker goes once through its samples."""
        return -(-self._usable(workers) // self._batch_size)

    def draw(self, workers: Indices, steps: int | Indices) -> BatchPlan:
        """Draw the next ``steps`` batches of each of the given, distinct workers: as many for all, or for each."""
        ids: list[int] = np.asarray(workers).tolist()
        number = np.arange(np.max(steps, initial=0))
        steps = np.full(len(ids), steps, np.int64)
        usable, per_pass = self._usable(workers), self.per_pass(workers)
        drawn = np.array([self._drawn.get(worker, 0) for worker in ids], np.int64)
        within = (drawn[:, None] + number) % per_pass[:, None]
        counts = np.minimum(usable[:, None] - within * self._batch_size, self._batch_size)
        counts[number >= steps[:, None]] = 0

        pieces: list[Indices] = []
        for worker, end, batches, first, last in zip(
            ids, usable.tolist(), per_pass.tolist(), drawn.tolist(), (drawn + steps).tolist(), strict=True
        ):
            pieces += self._pieces(worker, end, batches, first, last)
            self._drawn[worker] = last

        is_sample = np.arange(counts.max(initial=0)) < counts[..., None]
        indices = np.zeros(is_sample.shape, np.int64)
        indices[is_sample] = np.concatenate(pieces) if pieces else 0
        return BatchPlan(np.ascontiguousarray(indices.swapaxes(0, 1)), np.ascontiguousarray(counts.T), steps)

    def full_pass(self, workers: Indices) -> Iterator[BatchPlan]:
        """Yield plans of one step that cover every sample of each worker once; exhausted workers have count 0.

        Samples come in the order of the partition, the streams do not advance, and a last batch of one sample is
        dropped as in ``draw``.
        """
        usable = self._usable(workers)
        starts = self.partition.offsets[workers]
        for done in range(0, int(usable.max(initial=0)), self._batch_size):
            counts = np.clip(usable - done, 0, self._batch_size)
            position = np.arange(counts.max())
            is_sample = position < counts[:, None]
            indices = np.zeros(is_sample.shape, np.int64)
            indices[is_sample] = self.partition.indices[(starts[:, None] + done + position)[is_sample]]
            yield BatchPlan(indices[None], counts[None], np.ones(len(counts), np.int64))

    def state_dict(self) -> dict[str, Tensor]:
        """State for a checkpoint: the workers seen so far and how many batches each has drawn."""
        return {
            "workers": torch.tensor(list(self._drawn), dtype=torch.int64),
            "batches": torch.tensor(list(self._drawn.values()), dtype=torch.int64),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a checkpoint; raises ``UserError`` if it has more workers than the partition."""
        workers = state["workers"].tolist()
        if workers and max(workers) >= self.partition.num_workers:
            raise UserError(
                f"the checkpoint holds worker {max(workers)} but num_workers={self.partition.num_workers}; "
                "resume with the num_workers it was written with"
            )
        self._drawn = dict(zip(workers, state["batches"].tolist(), strict=True))
        self._orders = {}

    def _usable(self, workers: Indices) -> Indices:
        """Number of samples per pass: all but a last batch of one."""
        sizes = self.partition.offsets[workers + 1] - self.partition.offsets[workers]
        has_single_tail = (sizes > self._batch_size) & (sizes % self._batch_size == 1)
        return np.where(has_single_tail, sizes - 1, sizes)

    def _pieces(self, worker: int, usable: int, per_pass: int, first: int, last: int) -> list[Indices]:
        """Batches first..last of one worker, as few contiguous slices."""
        samples = self.partition.of(worker)
        if len(samples) <= self._batch_size:
            return [samples] * (last - first)
        pieces = []
        while first < last:
            number, skipped = divmod(first, per_pass)
            taken = min(per_pass - skipped, last - first)
            begin = skipped * self._batch_size
            pieces.append(self._order(worker, number)[begin : min(begin + taken * self._batch_size, usable)])
            first += taken
        return pieces

    def _order(self, worker: int, number: int) -> Indices:
        """The worker's samples in the order of pass ``number``; the latest pass of each worker is cached."""
        known, order = self._orders.get(worker, (-1, None))
        if order is None or known != number:
            samples = self.partition.of(worker)
            order = samples[self._shuffle(worker, number, len(samples))]
            self._orders[worker] = number, order
        return order


class _Shuffle:
    """``seeding.generator(seed, "batches", worker, pass).permutation(size)``, from one generator that is re-keyed.

    Making a generator takes longer than everything else a draw does; setting the state of one is five times cheaper.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._source = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._source)
        self._fresh = self._source.state  # counter 0, nothing buffered

    def __call__(self, worker: int, number: int, size: int) -> Indices:
        key = seeding.key(self._seed, "batches", worker, number, bits=128)
        self._fresh["state"]["key"] = np.array((key & 0xFFFFFFFFFFFFFFFF, key >> 64), np.uint64)
        self._source.state = self._fresh
        return self._generator.permutation(size)
