"""The two engines, and which one is faster where."""

from collections.abc import Callable

import torch

from fl_platform.models.network import Network
from fl_platform.workers.loop import SingleExecutor, train_one_by_one
from fl_platform.workers.stacked import StackedExecutor
from fl_platform.workers.training import Executor, Job, LocalResult, LocalTraining

FASTER = {"cpu": "loop", "cuda": "stacked"}
"""Measured on CPU for every model (benchmarks/README.md): one worker's parameters fit the cache, ten do not."""


def choose_engine(wish: str, device: torch.device, model: str) -> str:
    return FASTER.get(device.type, "stacked") if wish == "auto" else wish


class Engine:
    """Trains the workers of a job, one after another or all at once."""

    def __init__(self, name: str, network: Network, make_training: Callable[[Executor], LocalTraining]) -> None:
        self.name = name
        self._training = make_training(SingleExecutor(network) if name == "loop" else StackedExecutor(network))

    def train(self, job: Job) -> LocalResult:
        return train_one_by_one(self._training, job) if self.name == "loop" else self._training.train(job)
