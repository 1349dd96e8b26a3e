"""The local training of a federation: one for each thread, with the network and engine of a run."""

import importlib
import sys
from functools import cache
from typing import Any

import torch

from fl_platform.algorithms.base import Algorithm
from fl_platform.config.schema import Config
from fl_platform.data.device_samples import DeviceSamples
from fl_platform.data.streams import BatchStreams
from fl_platform.engines.cohort import TrainingPool
from fl_platform.engines.graphed import objective_of
from fl_platform.engines.local_sgd import LocalSGD
from fl_platform.engines.ranks import Ranks
from fl_platform.engines.training import LocalTraining
from fl_platform.models.network import Network


def training_pool(
    config: Config,
    network: Network,
    samples: DeviceSamples,
    streams: BatchStreams,
    ranks: Ranks,
    *,
    engine: str,
    num_threads: int,
    algorithm: Algorithm,
    seed: int,
) -> TrainingPool:
    """Return local training by an algorithm; the network is copied for further threads."""
    if samples.device.type == "cuda":
        load_cuda_kernels()
    networks = [network, *(network.copy() for _ in range(num_threads - 1))]
    objective = objective_of(engine, config.graphs, samples.device, algorithm, ranks)
    sgd = LocalSGD(config.local_momentum, config.local_weight_decay, config.local_clip)
    trainings = [
        LocalTraining(objective, one.to(samples.device), algorithm, samples, streams, sgd=sgd, seed=seed)
        for one in networks
    ]
    return TrainingPool(trainings)


@cache
def load_cuda_kernels() -> bool:
    """Use kernels that are written for CUDA once they have run there; returns whether they do, and says so if not."""
    try:
        kernels: Any = importlib.import_module("fl_platform.kernels.masked_norm")
        kernels.try_out(torch.device("cuda"))
    except Exception as error:  # noqa: BLE001, Triton is missing, or fails to compile in one of many ways
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        print(f"padded batches are normalised by plain operations, which take longer ({reason})", file=sys.stderr)
        return False
    kernels.register()
    return True
