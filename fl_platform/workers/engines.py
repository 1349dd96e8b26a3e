"""The two engines, and which one is faster where."""

import torch

from fl_platform.workers.loop import SingleObjective
from fl_platform.workers.stacked import StackedObjective
from fl_platform.workers.training import Objective

ENGINES: dict[str, type[Objective]] = {"loop": SingleObjective, "stacked": StackedObjective}

FASTER = {"cpu": "loop", "cuda": "stacked"}
"""By device, for every model of the platform: measured on CPU (benchmarks/README.md), where one worker's parameters
fit the cache and ten do not; on a GPU many small kernels lose to few large ones."""


def choose_engine(wish: str, device: torch.device) -> str:
    return FASTER.get(device.type, "stacked") if wish == "auto" else wish
