"""The two engines, and which one is faster where."""

import torch

from fl_platform.engines.loop import SingleObjective
from fl_platform.engines.stacked import StackedObjective
from fl_platform.engines.training import Objective

ENGINES: dict[str, type[Objective]] = {"loop": SingleObjective, "stacked": StackedObjective}

FASTER = {"cpu": "loop", "cuda": "stacked"}
"""By device, for every model of the platform.

On a CPU, ``python -m benchmarks.compare_engines`` (one thread, local training only) gave stacked / loop = 1.13 for mlp,
3.06 for lenet5, 1.91 for resnet20 and 1.11 for vgg11: one worker's parameters fit the cache and ten do not. On a GPU,
where nothing has been measured yet, many small kernels are expected to lose to few large ones. It is a fixed choice and
not a race at start-up: the same command must give the same bits.
"""


def choose_engine(asked: str, device: torch.device) -> str:
    """The engine asked for; for ``auto`` the one that is faster on the device."""
    return FASTER.get(device.type, "stacked") if asked == "auto" else asked
