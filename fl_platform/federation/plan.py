"""What a run needs of a device's memory, without running it, and which settings fit a card.

A cohort is trained on PyTorch's meta device, whose tensors have a size and no values, with the code that a run uses,
and the bytes of live tensors are counted. So every method and model is measured as it is, within seconds and anywhere.
Not in it: the CUDA context, scratch memory of cuDNN and cuBLAS, and what an allocator loses to rounding; a tenth of a
card is left for them, as a run does when it chooses ``cohort_chunk``.
"""

import contextlib
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, Updates
from fl_platform.config.schema import Config
from fl_platform.data import datasets
from fl_platform.data.device_samples import DeviceSamples
from fl_platform.data.partition import Partition
from fl_platform.data.prepare import prepare
from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset
from fl_platform.data.streams import BatchPlan, BatchStreams
from fl_platform.engines.choice import ENGINES
from fl_platform.engines.evaluation import batch_of
from fl_platform.engines.ranks import Ranks
from fl_platform.engines.training import LocalSGD, LocalTraining
from fl_platform.engines.work import LocalResult, LocalWork
from fl_platform.errors import UserError
from fl_platform.federation.algorithm_state import federation_of
from fl_platform.federation.allocations import Allocations
from fl_platform.federation.build import make_algorithm, make_network
from fl_platform.federation.compression import compress, error_memory
from fl_platform.federation.round import Model, outcome_widths
from fl_platform.kernels.recycled import KEPT, Recycler
from fl_platform.models.layers import Pass
from fl_platform.models.network import PRECISIONS, Network

META = torch.device("meta")
STEPS = 3  # from the third on every step holds the same tensors
RANKS = (2, 4, 8)
LEFT_FREE = 10  # a tenth of a card


@dataclass(frozen=True)
class Needs:
    """Bytes on the training device of one process."""

    parameters: int  # of the model
    data: int | None  # samples as they are stored; None where the data set is not found
    evaluated: int  # the test samples as the network takes them
    server: int  # global and initial model, and the method's own vectors
    memory: int  # GradMA's
    worker_state: int  # once every worker has been seen
    cohort: int  # of a round besides the stack that is being trained: updates, and what workers keep and send
    worker: int  # each worker of the stack: parameters, gradients, activations
    server_step: int  # updates, and what the method makes of them
    evaluation: int
    cohort_size: int
    workers_at_once: int

    @property
    def permanent(self) -> int:
        """What stays from round to round."""
        return (self.data or 0) + self.evaluated + self.server + self.memory + self.worker_state

    def total(self, chunk: int | None = None) -> int:
        """The largest number of bytes at any time, with ``chunk`` workers trained at once."""
        at_once = min(chunk or self.workers_at_once, self.cohort_size)
        return self.permanent + max(self.cohort + at_once * self.worker, self.server_step, self.evaluation)

    def largest_chunk(self, free: int) -> int:
        """Workers that can be trained at once within ``free`` bytes; 0 where the run does not fit."""
        if self.permanent + max(self.server_step, self.evaluation) > free:
            return 0
        return max(0, min(self.workers_at_once, (free - self.permanent - self.cohort) // max(1, self.worker)))


def needs_of(config: Config) -> Needs:
    """Measure a resolved configuration on the meta device."""
    config = replace(config, algorithm={**config.algorithm, **_unplaced(config)})
    dataset = datasets.get(config.data.name)
    algorithm = make_algorithm(config)
    network = make_network(config, dataset, algorithm)
    dtype = PRECISIONS[config.precision].dtype
    params, buffers = (tensor.to(META, dtype) for tensor in (network.initial_params, network.initial_buffers))
    algorithm.start(federation_of(config, network.to(META), Ranks(), META, dtype))
    stored, largest, num_test = _data(config)
    state = dict(algorithm.state_dict())
    memory = _bytes(state.pop("memory", None))
    engine = "stacked" if config.engine == "auto" else config.engine
    at_once = 1 if engine == "loop" else min(config.cohort_chunk or config.cohort_size, config.cohort_size)
    dry = DryRound(config, algorithm, network, params, buffers, min(config.batch_size, largest), engine)
    cohort, worker = dry.training(at_once)
    kept = sum(dry.widths[name] for name in algorithm.keeps) * params.element_size()
    kept += len(error_memory(algorithm, config.compression)) * _bytes(params)
    if config.buffers == "local":
        kept += _bytes(buffers)
    images = DeviceSamples(_blank(num_test, dataset), dataset, META, dtype).whole()
    # on a CPU, blocks of the last round are kept for the next while the model is evaluated
    reused = cohort + 2 * KEPT * at_once * _bytes(params) if config.device == "cpu" else 0
    sampled = config.cohort_size * (config.num_rounds or 1)
    return Needs(
        parameters=_bytes(params),
        data=stored,
        evaluated=_bytes(images),
        server=2 * (_bytes(params) + _bytes(buffers)) + _bytes(state),
        memory=memory,
        worker_state=min(config.num_workers or sampled, sampled) * kept,
        cohort=cohort,
        worker=worker,
        server_step=dry.server_step(),
        evaluation=reused + _evaluation(network, params, buffers, images, dataset.num_classes, config.device),
        cohort_size=config.cohort_size,
        workers_at_once=at_once,
    )


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
        dataset, count = datasets.get(config.data.name), config.cohort_size * batch
        samples = DeviceSamples(_blank(count, dataset), dataset, META, params.dtype)
        partition = Partition(np.arange(count), np.arange(config.cohort_size + 1) * batch)
        self.local_training = LocalTraining(
            ENGINES[engine],
            network,
            algorithm,
            samples,
            BatchStreams(partition, batch, config.seed),
            sgd=LocalSGD(config.local_momentum, config.local_weight_decay, config.local_clip),
            seed=config.seed,
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
        return result, sum(map(_bytes, result.stacks)) + _bytes(dict(work.state))

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


@dataclass(frozen=True)
class Setting:
    """Keys that make a run fit, and what it then needs."""

    keys: tuple[str, ...]
    bytes: int
    chunk: int


def fitting(needs: Needs, card: int) -> list[Setting]:
    """The settings with which a run fits a card of so many bytes, the simplest first; empty where none does."""
    free, found = card - card // LEFT_FREE, []
    offload_state = (False, True) if needs.worker_state else (False,)
    places = (("", 1), ("algorithm.memory_device=cpu", 0), *_shards()) if needs.memory else (("", 1),)
    for (place, share), is_offloaded in product(places, offload_state):
        smaller = replace(
            needs,
            memory=round(needs.memory * share),
            worker_state=0 if is_offloaded else needs.worker_state,
        )
        chunk = smaller.largest_chunk(free)
        if chunk:
            keys = [place] if place else []
            keys += ["state.device=cpu"] if is_offloaded else []
            keys += [f"cohort_chunk={chunk}"] if chunk < needs.workers_at_once else []
            found.append(Setting(tuple(keys), smaller.total(chunk), chunk))
    return sorted(found, key=lambda setting: (setting.chunk < needs.workers_at_once, len(setting.keys)))


def card_memory() -> int | None:
    """Bytes of the first CUDA device, or None without one."""
    return torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else None


def _shards() -> list[tuple[str, float]]:
    return [(f"algorithm.memory_shard=true trainer.strategy=ddp trainer.devices={count}", 1 / count) for count in RANKS]


def _unplaced(config: Config) -> dict[str, Any]:
    """The algorithm's memory where training is, whole: what offloading or sharding saves is computed from it."""
    return {name: None if name.endswith("_device") else False for name in PLACES if name in config.algorithm}


PLACES = ("memory_device", "memory_shard")


def _bytes(values: Any) -> int:
    """Bytes of the tensors of the meta device in nested dictionaries."""
    if isinstance(values, Tensor):
        return values.numel() * values.element_size() if values.device == META else 0
    return sum(_bytes(value) for value in values.values()) if isinstance(values, dict) else 0


def _data(config: Config) -> tuple[int | None, int, int]:
    """(bytes of both sets as they are stored, samples that a worker can have at most, samples evaluated)."""
    try:
        train, test = prepare(config)
    except UserError:
        return None, config.batch_size, 0
    parts = [part for each in (train, test) for part in (each.features, each.labels)]
    return sum(part.numel() * part.element_size() for part in parts), len(train), len(test)


def _blank(count: int, dataset: Dataset) -> Samples:
    """Samples without values, as they are stored."""
    dtypes = {"images": torch.uint8, "numbers": torch.float32, "tokens": torch.int64}
    features = torch.empty((count, *dataset.shape), dtype=dtypes[dataset.features], device=META)
    return Samples(features, torch.zeros(count, dtype=torch.int64))  # classes are counted on the host


def _evaluation(network: Network, params: Tensor, buffers: Tensor, images: Tensor, classes: int, device: str) -> int:
    """Bytes alive in a forward pass over a batch of the evaluated samples, and of the logits of all."""
    if not len(images):
        return 0
    weights = network.parameters.views(params)
    allocations = Allocations(META)
    with allocations, torch.no_grad():
        network.single(weights, buffers, images[: batch_of(images, device)], Pass(train=False))
    return allocations.peak + 2 * len(images) * classes * params.element_size()
