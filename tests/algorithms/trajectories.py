"""Federations of a tiny network or of quadratics, with the global model of every round and what workers sent."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor, nn

from fl_platform.algorithms import base
from fl_platform.algorithms.base import Algorithm, LocalBatch, Start
from fl_platform.config.schema import Config
from fl_platform.data.partition import Partition
from fl_platform.data.samples import Samples
from fl_platform.federation.build import instantiate
from fl_platform.federation.module import FederatedModule
from fl_platform.models.network import Network
from fl_platform.paper.methods import METHODS
from tests.federations import SIZES, Finished, make_config, make_module, synthetic_dataset, train

ALGORITHMS = list(METHODS)


class PlainNetwork(nn.Sequential):
    """Three blocks of PyTorch's own layers for 1x4x4 images of three classes; 239 parameters."""

    def __init__(self, drop: float = 0.0) -> None:
        dropout = [nn.Dropout(drop)] if drop else []
        super().__init__(
            nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), *dropout),
            nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU()),
            nn.Linear(6, 3),
        )


class DropoutNetwork(PlainNetwork):
    """The same with dropout."""

    def __init__(self) -> None:
        super().__init__(drop=0.3)


PLAIN = f"model.name={__name__}.PlainNetwork"
DROPOUT = f"model.name={__name__}.DropoutNetwork"


class EveryRound(L.Callback):
    """Copies of the global model after each round."""

    def __init__(self) -> None:
        self.params: list[Tensor] = []
        self.buffers: list[Tensor] = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        self.params.append(pl_module.global_params.clone())  # type: ignore[operator]
        self.buffers.append(pl_module.global_buffers.clone())  # type: ignore[operator]


@dataclass
class Trajectory(Finished):
    """A finished federation; rounds[0] is the initial model, rounds[t] the one after round t."""

    rounds: Tensor
    buffers: Tensor

    def table(self, name: str) -> Tensor:
        """(N, d) of what workers keep; those never seen have the default."""
        given = {
            Start.GLOBAL_PARAMS: self.module.global_params,
            Start.GLOBAL_BUFFERS: self.module.global_buffers,
            Start.INITIAL_PARAMS: self.rounds[0],
        }
        return self.module.states.gather(np.arange(self.module.config.num_workers), given)[name]

    def logged(self, key: str) -> list[Any]:
        return [row[key] for row in self.module.history if key in row]


def follow(config: Config, module: FederatedModule | None = None, **how: Any) -> Trajectory:
    """Train through the real Trainer and keep the model of every round."""
    recorder = EveryRound()
    how["callbacks"] = (*how.get("callbacks", ()), recorder)
    sizes = how.pop("sizes", SIZES)
    module = module or make_module(config, sizes)
    start = module.global_params.clone()
    done = train(config, module, **how)
    return Trajectory(
        done.module, done.algorithm, torch.stack([start, *recorder.params]), torch.stack(recorder.buffers)
    )


def run(name: str, *args: str, **how: Any) -> Trajectory:
    """The tiny network: 6 workers of unequal size, 3 a round, 4 rounds of 3 steps, float64, unless told otherwise."""
    model = () if any(word.startswith("model.name=") for word in args) else (PLAIN,)
    config = make_config(f"algorithm.name={name}", "num_rounds=4", *model, *args, workers=len(how.get("sizes", SIZES)))
    return follow(config, **how)


@dataclass(frozen=True)
class SeenStep:
    """A local step of the cohort."""

    index: int
    drift: Tensor  # x_tau - x_t
    gradient: Tensor
    direction: Tensor


@dataclass(frozen=True)
class SeenRound:
    """A server step."""

    updates: base.Updates
    before: Tensor  # x_t
    direction: Tensor


def watching(kind: type[Algorithm], **fields: Any) -> Any:
    """An algorithm that behaves like ``kind`` and keeps what its hooks saw; its own momentum it writes in place."""

    class Watching(kind):  # type: ignore[misc, valid-type]
        def local_direction(self, step: Any) -> Tensor:
            drift = step.params - step.global_params
            direction = super().local_direction(step)
            self.steps.append(SeenStep(step.index, drift, step.gradient, direction))
            return direction

        def server_direction(self, updates: Any) -> Tensor:
            direction = super().server_direction(updates)
            self.server_steps.append(SeenRound(updates, updates.global_params, direction.clone()))
            return direction

    algorithm = instantiate(Watching, fields)
    algorithm.steps, algorithm.server_steps = deque(), []  # a list that grows in a worker hook is refused
    return algorithm


def watch(name: str, *args: str, **how: Any) -> Trajectory:
    """``run`` with an algorithm that is watched; its hooks see the whole cohort at once."""
    defaults = ("num_rounds=4", PLAIN, "engine=stacked")
    config = make_config(f"algorithm.name={name}", *defaults, *args, workers=len(how.get("sizes", SIZES)))
    fields = {key: value for key, value in config.algorithm.items() if key != "name"}
    return follow(config, algorithm=watching(base.get(name), **fields), **how)


class Point(nn.Module):
    """x - a for images a: with half its square as the loss, worker i has f_i(x) = 1/2 |x - a_i|^2 + constant."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(start)

    def forward(self, images: Tensor) -> Tensor:
        return self.x - images.flatten(1)


def on_quadratics(kind: type[Algorithm], **fields: Any) -> Any:
    class OnQuadratics(kind):  # type: ignore[misc, valid-type]
        def local_loss(self, batch: LocalBatch) -> Tensor:
            return batch.mean(batch.logits.square().sum(-1) / 2)

    return watching(OnQuadratics, **fields)


def as_points(targets: np.ndarray) -> Tensor:
    """Bytes as the platform normalises them here: [0, 255] -> [-1, 1]."""
    return torch.from_numpy(targets / 255 / 0.5 - 1)


def run_quadratics(
    name: str, *args: str, targets: np.ndarray, start: Tensor | None = None, sizes: tuple[int, ...] | None = None
) -> tuple[Trajectory, Tensor]:
    """Worker i owns sizes[i] copies (two) of the image targets[i]; the trajectory from ``start``, and the a_i."""
    workers, dim = targets.shape
    sizes = sizes or (2,) * workers
    dataset = synthetic_dataset((1, 1, dim), dim)
    config = make_config(f"algorithm.name={name}", f"cohort_size={workers}", *args, workers=workers)
    labels = np.arange(sum(sizes)) % dim
    images = Samples.from_arrays(targets.repeat(sizes, axis=0).reshape(-1, 1, 1, dim), labels)
    partition = Partition(np.arange(sum(sizes)), np.concatenate([[0], np.cumsum(sizes)]))
    start = torch.linspace(1.5, -1.0, dim, dtype=torch.float64) if start is None else start
    module = FederatedModule(config, dataset, Network(Point(start)), images, images, partition)
    fields = {key: value for key, value in config.algorithm.items() if key != "name"}
    done = follow(config, module, algorithm=on_quadratics(base.get(name), **fields))
    return done, as_points(targets)
