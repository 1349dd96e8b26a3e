"""How many local steps each worker takes in a round."""

import numpy as np
from numpy.typing import NDArray

from fl_platform.config.schema import Config
from fl_platform.data.streams import BatchStreams
from fl_platform.seeding import generator


def local_steps(config: Config, streams: BatchStreams, workers: np.ndarray, round: int) -> NDArray[np.int64]:
    """Return the number of steps of each worker in a round: its full work, or less where ``work.name`` says so.

    It depends on the seed, the round and the worker alone, so every method meets the same stragglers.
    """
    full = full_steps(config, streams, workers)
    if config.work.name == "uniform":
        draws = [straggling(config, worker, round, steps) for worker, steps in zip(workers, full, strict=True)]
        return np.array(draws, np.int64)
    if config.work.name == "by_speed":
        speeds = np.array([speed(config, worker) for worker in workers])
        possible: NDArray[np.int64] = np.clip(np.floor(full * speeds), 1, full).astype(np.int64)
        return possible
    return full


def full_steps(config: Config, streams: BatchStreams, workers: np.ndarray) -> NDArray[np.int64]:
    """``local_steps`` for all, or ``local_epochs`` passes of each worker over its data."""
    if config.local_epochs is not None:
        return config.local_epochs * streams.per_pass(workers)
    return np.full(len(workers), config.local_steps, np.int64)


def straggling(config: Config, worker: int, round: int, steps: int) -> int:
    """All steps, or 1 to all of them, each as likely, where the worker is a straggler of the round."""
    rng = generator(config.seed, "work", round, int(worker))
    is_straggler = rng.random() < config.work.straggler_share
    return int(rng.integers(1, steps + 1)) if is_straggler else int(steps)


def speed(config: Config, worker: int) -> float:
    """A worker's speed in every round, log-normal; 1, the median, is what all steps of a round ask for."""
    return float(np.exp(config.work.speed_spread * generator(config.seed, "speed", int(worker)).standard_normal()))
