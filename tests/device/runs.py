"""Federations on the simulated device, or on the CPU, and what each part of a round asks of the device."""

from itertools import pairwise
from typing import Any

import lightning as L
import torch
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.strategies import SingleDeviceStrategy

import fl_platform.algorithms  # noqa: F401  registers them
from fl_platform.algorithms import base
from fl_platform.config.options import walk
from fl_platform.config.schema import Config
from fl_platform.federation.build import make_algorithm
from tests.device import simulated
from tests.device.simulated import Counts
from tests.federations import Finished, make_module, synthetic_dataset, train

CPU, DEVICE = torch.device("cpu"), simulated.device()
SHAPES = {"mlp": (1, 4, 4), "lenet5": (3, 16, 16), "vgg11": (1, 32, 32), "resnet20": (1, 8, 8)}


PROJECTING = [name for name in base.names() if "qp.scope" in dict(walk(base.get(name)))]


class SimulatedAccelerator(Accelerator):
    """Lightning's view of the simulated devices."""

    def setup_device(self, device: torch.device) -> None:
        """Nothing to do."""

    def teardown(self) -> None:
        """Nothing to do."""

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        return {}

    @staticmethod
    def parse_devices(devices: Any) -> list[int]:
        return list(range(devices)) if isinstance(devices, int) else list(devices)

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        return [simulated.device(index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        return simulated.DEVICE_COUNT

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def name() -> str:
        return simulated.NAME


def run_on(device: torch.device, config: Config, **how: Any) -> Finished:
    """Run a federation through the real Trainer on one device."""
    if device.type == simulated.NAME:
        how["strategy"] = SingleDeviceStrategy(device=device, accelerator=SimulatedAccelerator())
    if config.model.name in SHAPES:
        how.setdefault("module", make_module(config, dataset=synthetic_dataset(SHAPES[config.model.name])))
    with simulated.counting() as counts:
        done = train(config, **how)
    assert bool(counts.kernels) == (device != CPU)
    return done  # Lightning has moved the module to the CPU


def distance(one: Finished, other: Finished) -> float:
    """The largest difference of two models' parameters and buffers."""
    pairs = ((one.params, other.params), (one.module.global_buffers, other.module.global_buffers))
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel())


class Phases(L.Callback):
    """Counts the workers' part, the server's part and the evaluation of the rounds from number ``first`` on.

    The workers' part ends when ``finish_local`` of the last stack of workers returns. In the first round constants are
    made that stay on the device. ``steps`` has the (kernels, reads, copies) of the workers' part whenever a local step
    asks for its direction.
    """

    def __init__(self, first: int = 2) -> None:
        self.first = first
        self.workers, self.server, self.evaluation = Counts(), Counts(), Counts()
        self.steps: list[tuple[int, int, int]] = []
        self._current: Any = None

    def watch(self, algorithm: Any) -> Any:
        """The algorithm, which reports here when a step asks for its direction and when its workers have finished."""
        finish_local, local_direction = algorithm.finish_local, algorithm.local_direction

        def finished(run: Any) -> Any:
            found = finish_local(run)
            if self._current is not None:
                self._count_into(self.server)
            return found

        def stepped(step: Any) -> Any:
            if self._current is not None:
                self.steps.append(self.workers.totals)
            return local_direction(step)

        algorithm.finish_local, algorithm.local_direction = finished, stepped
        return algorithm

    def per_step(self, first: int) -> tuple[int, int, int]:
        """The most kernels, reads and copies from one step's direction to the next, from step ``first`` on."""
        pairs = list(pairwise(self.steps[first:]))
        kernels, reads, copies = (max(after[i] - before[i] for before, after in pairs) for i in range(3))
        return kernels, reads, copies

    def _count_into(self, counts: Counts | None) -> None:
        if self._current is not None:
            self._current.__exit__(None, None, None)
        self._current = None if counts is None else simulated.counting(counts)
        if self._current is not None:
            self._current.__enter__()

    def on_train_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        if trainer.current_epoch + 1 >= self.first:
            self._count_into(self.workers)

    def on_train_batch_end(self, *args: Any) -> None:
        self._count_into(None)

    def on_validation_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        if trainer.current_epoch + 1 >= self.first:
            self._count_into(self.evaluation)

    def on_validation_batch_end(self, *args: Any) -> None:
        self._count_into(None)


def counted(config: Config, **how: Any) -> tuple[Finished, Phases]:
    """A federation on the simulated device, and the counts of its last round."""
    phases = Phases(config.num_rounds)
    done = run_on(DEVICE, config, algorithm=phases.watch(make_algorithm(config)), callbacks=(phases,), **how)
    return done, phases
