"""Which engine a run uses: as asked, fixed on a CPU, by a timed trial on other devices; the same on every rank."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import torch

from fl_platform.algorithms.base import Algorithm
from fl_platform.config.schema import Config
from fl_platform.data.device_samples import DeviceSamples
from fl_platform.data.locations import cache_directory
from fl_platform.data.streams import BatchStreams
from fl_platform.engines import trial
from fl_platform.engines.choice import ENGINES, Choice, choose_engine
from fl_platform.engines.local_sgd import LocalSGD
from fl_platform.engines.ranks import Ranks
from fl_platform.engines.training import LocalTraining
from fl_platform.models.flat import Vector
from fl_platform.models.network import Network
from fl_platform.tracking.identity import installed

CACHE = "engine_trials"
"""The folder of the user's cache that holds the results of trials."""


def engine_of(
    config: Config,
    network: Network,
    samples: DeviceSamples,
    streams: BatchStreams,
    start: tuple[Vector, Vector],
    ranks: Ranks,
    *,
    shape: Sequence[int],
) -> Choice:
    """Return the engine of a run on the device of ``start``, its first parameters and buffers; ``shape`` is a sample's.

    The trial trains plain FedAvg workers on the run's model, batch size and cohort. Its result is kept in the user's
    cache for the same device, model, cohort, batch size and versions. Where it decides, one line on stderr says so.
    """
    params, buffers = start
    workers = max(1, min(config.cohort_size, config.cohort_chunk or config.cohort_size) // ranks.size)

    def take() -> trial.Taken:
        trainings = {
            name: LocalTraining(
                kind,
                network.to(params.device),
                Algorithm(),
                samples,
                streams,
                sgd=LocalSGD(),
                seed=config.seed,
            )
            for name, kind in ENGINES.items()
        }
        return trial.seconds_of(trainings, params, buffers, workers, config.batch_size)

    about = circumstances(config, shape, params.device, workers)
    choice = choose_engine(config.engine, params.device, lambda: trial.kept(cache_directory() / CACHE, about, take))
    first: Choice = ranks.collect(choice)[0]  # it decides for all ranks
    if first.seconds and ranks.rank == 0:
        print(first.sentence, file=sys.stderr, flush=True)
    return first


def engine_to_go_on_with(saved: dict[str, str] | None, asked: str, now: Choice) -> Choice | None:
    """Return the engine of a checkpoint if an open ``engine=auto`` has now chosen another on the same type of device.

    With it the rounds to come have the bits of an uninterrupted run. ``saved`` is None for checkpoints without one.
    """
    if saved and asked == "auto" and saved["device"] == now.device and saved["engine"] != now.engine:
        return Choice(saved["engine"], saved["device"])
    return None


def circumstances(config: Config, shape: Sequence[int], device: torch.device, workers: int) -> dict[str, Any]:
    """What the result of a trial depends on."""
    return {
        "device": trial.device_name(device),
        "model": dataclasses.asdict(config.model),
        "shape": list(shape),
        "workers": workers,
        "batch_size": config.batch_size,
        "precision": [config.precision, config.tf32],
        "versions": [installed("fl_platform"), torch.__version__],
    }
