"""What a run needs of a device's memory, without running it, and which settings fit a card.

A cohort is trained on PyTorch's meta device, whose tensors have a size and no values, with the code that a run uses,
and the bytes of live tensors are counted. So every method and model is measured as it is, within seconds and anywhere.
Not in it: the CUDA context, scratch memory of cuDNN and cuBLAS, and what an allocator loses to rounding; a tenth of a
card is left for them, as a run does when it chooses ``cohort_chunk``.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from fl_platform.config.schema import Config
from fl_platform.data import datasets
from fl_platform.data.device_samples import DeviceSamples
from fl_platform.data.prepare import prepare
from fl_platform.engines.evaluation import batch_of, logits_of
from fl_platform.engines.ranks import Ranks
from fl_platform.errors import UserError
from fl_platform.federation.algorithm_state import federation_of
from fl_platform.federation.allocations import Allocations
from fl_platform.federation.build import make_algorithm, make_network
from fl_platform.federation.compression import error_memory
from fl_platform.federation.dry_round import META, DryRound, blank, bytes_of
from fl_platform.models.code import standing_for
from fl_platform.models.network import PRECISIONS, Network

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
    """Measure a resolved configuration on the meta device, with the code of the CPU for ``device=cpu``."""
    with standing_for("cpu" if config.device == "cpu" else "cuda"):
        return _needs_of(config)


def _needs_of(config: Config) -> Needs:
    config = replace(config, algorithm={**config.algorithm, **_unplaced(config)})
    dataset = datasets.get(config.data.name)
    algorithm = make_algorithm(config)
    network = make_network(config, dataset, algorithm)
    dtype = PRECISIONS[config.precision].dtype
    params, buffers = (tensor.to(META, dtype) for tensor in (network.initial_params, network.initial_buffers))
    algorithm.start(federation_of(config, network.to(META), Ranks(), META, dtype))
    stored, largest, num_test = _data(config)
    state = dict(algorithm.state_dict())
    memory = bytes_of(state.pop("memory", None))
    engine = "stacked" if config.engine == "auto" else config.engine
    at_once = 1 if engine == "loop" else min(config.cohort_chunk or config.cohort_size, config.cohort_size)
    dry = DryRound(config, algorithm, network, params, buffers, min(config.batch_size, largest), engine)
    cohort, worker = dry.training(at_once)
    kept = sum(dry.widths[name] for name in algorithm.keeps) * params.element_size()
    kept += len(error_memory(algorithm, config.compression)) * bytes_of(params)
    if config.buffers == "local":
        kept += bytes_of(buffers)
    images = DeviceSamples(blank(num_test, dataset), dataset, META, dtype).whole()
    # a CPU keeps blocks of the workers for the next round during the server's step, and updates during the evaluation
    reused, updates = (dry.blocks.kept(at_once), dry.result_bytes) if config.device == "cpu" else (0, 0)
    sampled = config.cohort_size * (config.num_rounds or 1)
    return Needs(
        parameters=bytes_of(params),
        data=stored,
        evaluated=bytes_of(images),
        server=2 * (bytes_of(params) + bytes_of(buffers)) + bytes_of(state),
        memory=memory,
        worker_state=min(config.num_workers or sampled, sampled) * kept,
        cohort=cohort,
        worker=worker,
        server_step=reused + dry.server_step(),
        evaluation=reused + updates + _evaluation(network, params, buffers, images, dataset.num_classes),
        cohort_size=config.cohort_size,
        workers_at_once=at_once,
    )


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


def _data(config: Config) -> tuple[int | None, int, int]:
    """(bytes of both sets as they are stored, samples that a worker can have at most, samples evaluated)."""
    try:
        train, test = prepare(config)
    except UserError:
        return None, config.batch_size, 0
    parts = [part for each in (train, test) for part in (each.features, each.labels)]
    return sum(part.numel() * part.element_size() for part in parts), len(train), len(test)


def _evaluation(network: Network, params: Tensor, buffers: Tensor, images: Tensor, classes: int) -> int:
    """Bytes alive in a forward pass over a batch of the evaluated samples, and of the logits of all."""
    if not len(images):
        return 0
    weights = network.parameters.views(params)
    batch = images[: batch_of(network, weights, buffers, images)]
    allocations = Allocations(META)
    with allocations:
        logits_of(network, weights, buffers, batch)
    return allocations.peak + 2 * len(images) * classes * params.element_size()
