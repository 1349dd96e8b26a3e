"""A piece of a round without values, on PyTorch's meta device, and the bytes that its tensors would take."""

import contextlib
import weakref
from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, Updates
from fl_platform.config.schema import Config
from fl_platform.data import datasets
from fl_platform.data.device_samples import DeviceSamples
from fl_platform.data.partition import Partition
from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset
from fl_platform.data.streams import BatchPlan, BatchStreams
from fl_platform.engines.choice import ENGINES
from fl_platform.engines.local_sgd import LocalSGD
from fl_platform.engines.training import LocalTraining
from fl_platform.engines.work import LocalResult, LocalWork
from fl_platform.federation.allocations import Allocations
from fl_platform.federation.compression import compress, error_memory
from fl_platform.federation.round import Model, outcome_widths
from fl_platform.kernels.recycled import KEPT, LARGE, Recycler
from fl_platform.models.network import Network

META = torch.device("meta")
STEPS = 3  # from the third on every step holds the same tensors


class Blocks(Recycler):
    """Hands out new tensors, and notes how many of each name are alive at most: a CPU's recycler keeps some of them."""

    def __init__(self) -> None:
        super().__init__()
        self._alive, self._most = Counter[str](), Counter[str]()
        self._row_bytes: dict[str, int] = {}

    def empty(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """``like.new_empty(shape)``, counted while it is held."""
        made = like.new_empty(shape)
        self._alive[name] += 1
        self._most[name] = max(self._most[name], self._alive[name])
        self._row_bytes[name] = bytes_of(made) // len(made)
        weakref.finalize(made.untyped_storage(), self._alive.subtract, [name]).atexit = False
        return made

    def kept(self, rows: int) -> int:
        """Bytes that stay allocated between rounds, where stacks have so many rows."""
        sizes = {name: rows * size for name, size in self._row_bytes.items()}
        return sum(min(KEPT, self._most[name]) * size for name, size in sizes.items() if size >= LARGE)


class DryRound:
    """A round of full batches on the meta device."""

    def __init__(
        self,
        config: Config,
        algorithm: Algorithm,
        network: Network,
        params: Tensor,
        buffers: Tensor,
        batch: int,
        engine: str,
    ) -> None:
        self.config, self.algorithm, self.batch = config, algorithm, batch
        self.params, self.buffers, self.steps = params, buffers, min(STEPS, config.local_steps or STEPS)
        self.widths = outcome_widths(algorithm, Model(params, buffers))
        self.blocks = Blocks()
        dataset, count = datasets.get(config.data.name), config.cohort_size * batch
        samples = DeviceSamples(blank(count, dataset), dataset, META, params.dtype)
        partition = Partition(np.arange(count), np.arange(config.cohort_size + 1) * batch)
        self.local_training = LocalTraining(
            ENGINES[engine],
            network,
            algorithm,
            samples,
            BatchStreams(partition, batch, config.seed),
            sgd=LocalSGD(config.local_momentum, config.local_weight_decay, config.local_clip),
            seed=config.seed,
            memory=self.blocks,
        )

    def training(self, at_once: int) -> tuple[int, int]:
        """(bytes of a round besides the stack that is trained, bytes of each worker of the stack).

        The most bytes alive grow by the same for every further worker of a stack; two lengths say by how much.
        """
        if at_once == 1:
            held = self.empty_result(self.work(1))[1]
            return held, self.peak(1) - held
        lengths = (1, 2) if at_once == 2 else (2, 3)
        less, more = map(self.peak, lengths)
        return less - lengths[0] * (more - less), more - less

    def work(self, chunk: int) -> LocalWork:
        """Full batches for every worker of the cohort; of a stack of several, one is padded, as in most rounds."""
        workers = np.arange(self.config.cohort_size)
        counts = np.full((self.steps, len(workers)), self.batch)
        if chunk > 1:
            counts[:, 1] = max(1, self.batch - 1)
        indices = np.zeros((*counts.shape, self.batch), np.int64)
        keeps = self.algorithm.keeps
        return LocalWork(
            round=1,
            workers=workers,
            plan=BatchPlan(indices, counts, np.full(len(workers), self.steps)),
            local_lr=self.config.local_lr,
            global_params=self.params,
            global_buffers=self.buffers,
            buffers=self.buffers,
            relative_sizes=self.params.new_ones(len(workers)),
            state={name: self.params.new_empty(len(workers), self.widths[name]) for name in keeps},
            gradient_passes=np.zeros(len(workers), np.int64),
        )

    def empty_result(self, work: LocalWork) -> tuple[LocalResult, int]:
        """The stacks that a cohort fills, and their bytes with those of the state it was given."""
        result = LocalResult.empty(work, self.widths, Recycler())
        return result, sum(map(bytes_of, result.stacks)) + bytes_of(dict(work.state))

    @property
    def result_bytes(self) -> int:
        """Bytes of the stacks that a cohort fills."""
        return sum(map(bytes_of, self.empty_result(self.work(1))[0].stacks))

    def peak(self, chunk: int) -> int:
        """The most bytes alive while the first ``chunk`` workers of a cohort are trained at once."""
        allocations = Allocations(META)
        with allocations:
            work = self.work(chunk)
            result, _ = self.empty_result(work)
            self.local_training.train(work.part(slice(0, chunk)), result, slice(0, chunk))
        return allocations.peak

    def sent(self, result: LocalResult) -> LocalResult:
        """What workers send, with the errors that they keep."""
        if self.config.compression.name == "none":
            return result
        names = error_memory(self.algorithm, self.config.compression)
        memory = {name: torch.empty_like(result.delta) for name in names}
        return compress(result, memory, self.algorithm, self.config, 1)

    def server_step(self) -> int:
        """The most bytes alive from the last update, compressed where that is asked for, to the server's direction.

        The direction is followed up to where it reads values, which the meta device does not have: the vectors it
        computes with are all made by then.
        """
        allocations = Allocations(META)
        with allocations:
            result = self.sent(self.empty_result(self.work(1))[0])
            weights = self.params.new_ones(len(result.workers))
            updates = Updates(
                round=1,
                workers=result.workers,
                delta=result.delta,
                weights=weights,
                population_weights=weights,
                sent={name: result.outcome[name] for name in self.algorithm.sends},
                global_params=self.params,
                step_counts=result.local_steps,
                local_lr=self.config.local_lr,
                local_momentum=self.config.local_momentum,
            )
            with contextlib.suppress(RuntimeError, NotImplementedError):
                self.algorithm.begin_round(result.workers, 1)
                self.algorithm.server_direction(self.algorithm.receive_updates(updates))
        return allocations.peak


def blank(count: int, dataset: Dataset) -> Samples:
    """Samples without values, as they are stored."""
    dtypes = {"images": torch.uint8, "numbers": torch.float32, "tokens": torch.int64}
    features = torch.empty((count, *dataset.shape), dtype=dtypes[dataset.features], device=META)
    return Samples(features, torch.zeros(count, dtype=torch.int64))  # classes are counted on the host


def bytes_of(values: Any) -> int:
    """Bytes of the tensors of the meta device in nested dictionaries."""
    if isinstance(values, Tensor):
        return values.numel() * values.element_size() if values.device == META else 0
    return sum(bytes_of(value) for value in values.values()) if isinstance(values, dict) else 0
