"""The two engines, and which one is used."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from fl_platform.engines.loop import SingleObjective
from fl_platform.engines.stacked import StackedObjective
from fl_platform.engines.training import Objective

ENGINES: dict[str, type[Objective]] = {"loop": SingleObjective, "stacked": StackedObjective}

ON_CPU = "loop"
"""For every model of the platform: ``python -m benchmarks.compare_engines`` (one thread, local training only) gave
stacked / loop = 1.13 for mlp, 3.06 for lenet5, 1.91 for resnet20 and 1.11 for vgg11: one worker's parameters fit the
cache and ten do not. It is a fixed choice, so that the same command gives the same bits on every CPU run."""


@dataclass(frozen=True)
class Choice:
    """The engine of a run, and where it was chosen by a trial the seconds that each took."""

    engine: str
    device: str  # type of the device it was chosen for
    seconds: dict[str, float] | None = None

    @property
    def sentence(self) -> str:
        """What a user is told about a trial."""
        taken = ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in (self.seconds or {}).items())
        return f"engine={self.engine} on {self.device}, by a timed trial of both ({taken}); engine= decides otherwise"


def choose_engine(asked: str, device: torch.device, trial: Callable[[], dict[str, float]]) -> Choice:
    """The engine asked for; for ``auto`` the loop on a CPU, elsewhere the one that is faster in a trial.

    ``trial`` returns the seconds of each engine on the device; it is called only where it decides. It returns none
    where memory does not suffice for one worker: the loop, which needs least, will say so.
    """
    if asked != "auto":
        return Choice(asked, device.type)
    if device.type == "cpu":
        return Choice(ON_CPU, device.type)
    seconds = trial()
    if not seconds:
        return Choice("loop", device.type)
    return Choice(min(seconds, key=lambda name: seconds[name]), device.type, seconds)
