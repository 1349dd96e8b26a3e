"""The sixteen methods once more, as their papers state them: nn.Module, torch.optim.SGD, one worker after another.

Only the initial model, cohorts and batches come from the platform. Local rules are written as objectives, not as
directions; server rules in the form of the publication (FedDyn with g_i and h, MIFA with its table, Scaffold's c as the
mean of all c_i); projections by scipy's NNLS in the full space. Meant to be read, not to be fast.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import nnls
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fl_platform.config.schema import Config
from fl_platform.data.partition import Partition
from fl_platform.data.streams import BatchStreams
from fl_platform.federation.pool import WorkerPool
from tests.algorithms.trajectories import PlainNetwork
from tests.federations import SIZES, images, make_module, synthetic_dataset

Model = tuple[Tensor, Tensor]  # parameters and running statistics, flat
Objective = Callable[..., Tensor]  # (model, images, labels, start, last) -> loss


def plain_network() -> nn.Sequential:
    """The blocks of PlainNetwork in a Sequential of PyTorch's own, which can be sliced."""
    return nn.Sequential(*PlainNetwork())


def headed_network() -> nn.Sequential:
    """The plain network as MOON's authors would have it: encoder and projection head, classifier."""
    first, second, _ = plain_network()
    head = [nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 256)]
    return nn.Sequential(first, nn.Sequential(*second, *head), nn.Linear(256, 3))


class World:
    """Data, cohorts, batches and a network of PyTorch's own layers."""

    def __init__(
        self,
        config: Config,
        sizes: tuple[int, ...] = SIZES,
        network: Callable[[], nn.Sequential] = plain_network,
    ) -> None:
        self.config, self.sizes, self.network = config, np.array(sizes), network
        dataset = synthetic_dataset()
        train = images(int(self.sizes.sum()), dataset.shape, dataset.num_classes, "train")
        self._pixels, self._labels = train.features.double() / 255 / 0.5 - 1, train.labels
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        self._partition = Partition(np.arange(offsets[-1]), offsets)
        self._streams = BatchStreams(self._partition, config.batch_size, config.seed)
        self.start: Model = (make_module(config, sizes).global_params.clone(), statistics(plain_network().double()))

    def cohorts(self) -> Iterator[list[int]]:
        pool = WorkerPool(self.config.num_workers, self.config.cohort_size, self.config.availability, self.config.seed)
        for round in range(1, int(self.config.num_rounds or 0) + 1):
            yield pool.sample(round).reporting.tolist()

    def batches(self, worker: int) -> list[tuple[Tensor, Tensor]]:
        plan = self._streams.draw(np.array([worker]), self.config.local_steps)
        chosen = [indices[:count] for indices, count in zip(plan.indices[:, 0], plan.counts[:, 0], strict=True)]
        return [(self._pixels[index], self._labels[index]) for index in chosen]

    def all_batches(self, worker: int) -> list[tuple[Tensor, Tensor]]:
        own = torch.from_numpy(self._partition.of(worker)).split(self.config.batch_size)
        return [(self._pixels[index], self._labels[index]) for index in own if len(index) > 1]

    def weight(self, worker: int, among: list[int]) -> float:
        if self.config.aggregation == "uniform":
            return 1 / len(among)
        return float(self.sizes[worker] / self.sizes[among].sum())

    def mean(self, values: dict[int, Any], among: list[int] | None = None) -> Any:
        """The weighted mean over a cohort, or over all N workers, where those without a value count as zero."""
        among = list(range(self.config.num_workers)) if among is None else among
        return sum(self.weight(worker, among) * values[worker] for worker in among if worker in values)

    def sgd(self, start: Model, worker: int, objective: Objective, last: Model | None = None) -> Model:
        """A worker's model after its local steps."""
        model = build(start, self.network)
        optimiser = torch.optim.SGD(model.parameters(), lr=self.config.local_lr)
        for pixels, labels in self.batches(worker):
            optimiser.zero_grad()
            objective(model, pixels, labels, start=start, last=last or start).backward()
            optimiser.step()
        return parameters_to_vector(model.parameters()).detach(), statistics(model)

    def averaged_statistics(self, ends: dict[int, Model], cohort: list[int]) -> Tensor:
        return self.mean({worker: end[1] for worker, end in ends.items()}, cohort)


def build(at: Model, network: Callable[[], nn.Sequential] = plain_network) -> nn.Sequential:
    model = network().double()
    vector_to_parameters(at[0].clone(), model.parameters())
    tensors = [value for name, value in model.named_buffers() if "running" in name]
    for tensor, piece in zip(tensors, at[1].split([len(tensor) for tensor in tensors]), strict=True):
        tensor.copy_(piece)
    return model


def statistics(model: nn.Module) -> Tensor:
    return torch.cat([value.clone() for name, value in model.named_buffers() if "running" in name])


def gradient(at: Model, pixels: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient of the cross-entropy, and the running statistics after the pass."""
    model = build(at)
    F.cross_entropy(model(pixels), labels).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]), statistics(model)


def plain(model: nn.Module, pixels: Tensor, labels: Tensor, start: Model, last: Model) -> Tensor:
    return F.cross_entropy(model(pixels), labels)


def proximal(mu: float, model: nn.Module, pixels: Tensor, labels: Tensor, start: Model, last: Model) -> Tensor:
    distance = parameters_to_vector(model.parameters()) - start[0]
    return F.cross_entropy(model(pixels), labels) + mu / 2 * distance.dot(distance)


def contrastive(
    mu: float, temperature: float, network: Callable[[], nn.Sequential],
    model: nn.Sequential, pixels: Tensor, labels: Tensor, start: Model, last: Model,
) -> Tensor:  # fmt: skip
    z = model[:2](pixels)
    with torch.no_grad():
        z_global, z_last = (build(at, network).eval()[:2](pixels) for at in (start, last))
    toward = torch.exp(F.cosine_similarity(z, z_global) / temperature)
    away = torch.exp(F.cosine_similarity(z, z_last) / temperature)
    return F.cross_entropy(model[2](z), labels) + mu * -torch.log(toward / (toward + away)).mean()


def branched(
    hybrid_weight: float, similarity_weight: float, temperature: float,
    model: nn.Sequential, pixels: Tensor, labels: Tensor, start: Model, last: Model,
) -> Tensor:  # fmt: skip
    frozen = build(start).requires_grad_(False)
    first = model[0](pixels)
    second = model[1](first)
    logits = model[2](second)
    hybrids = [frozen[1:](first), frozen[2:](second)]
    cross_entropies = sum(F.cross_entropy(hybrid, labels) for hybrid in hybrids) / 2
    main = F.log_softmax(logits / temperature, dim=1)
    divergences = [F.kl_div(main, F.softmax(h / temperature, dim=1), reduction="batchmean") for h in hybrids]
    return F.cross_entropy(logits, labels) + hybrid_weight * cross_entropies + similarity_weight * sum(divergences) / 2


def averaging(world: World, objective: Objective, momentum_decay: float = 0.0) -> Model:
    """FedAvg, FedProx, MOON and FedMLB by their objective, with slow momentum or without."""
    (x, buffers), momentum, last = world.start, torch.zeros(()), dict[int, Model]()
    for cohort in world.cohorts():
        ends = {i: world.sgd((x, buffers), i, objective, last.get(i)) for i in cohort}
        momentum = momentum_decay * momentum + world.mean({i: x - end[0] for i, end in ends.items()}, cohort)
        x, buffers = x - world.config.server_lr * momentum, world.averaged_statistics(ends, cohort)
        last |= ends
    return x, buffers


def scaffold(world: World) -> Model:
    """Option II; the server's control variate is the mean of all workers'."""
    x, buffers = world.start
    controls = {i: torch.zeros_like(x) for i in range(world.config.num_workers)}
    for cohort in world.cohorts():
        control = world.mean(controls)

        def corrected(shift: Tensor, model: nn.Module, pixels: Tensor, labels: Tensor, **_: Model) -> Tensor:
            return F.cross_entropy(model(pixels), labels) + shift.dot(parameters_to_vector(model.parameters()))

        ends = {i: world.sgd((x, buffers), i, partial(corrected, control - controls[i])) for i in cohort}
        steps = world.config.local_steps * world.config.local_lr
        controls |= {i: controls[i] - control + (x - end[0]) / steps for i, end in ends.items()}
        buffers = world.averaged_statistics(ends, cohort)
        x = x - world.config.server_lr * world.mean({i: x - end[0] for i, end in ends.items()}, cohort)
    return x, buffers


def feddyn(world: World, alpha: float) -> Model:
    """With the workers' gradients g_i and the server's h of the publication; server rate 1."""
    x, buffers = world.start
    duals = {i: torch.zeros_like(x) for i in range(world.config.num_workers)}
    for cohort in world.cohorts():

        def dynamic(dual: Tensor, model: nn.Module, pixels: Tensor, labels: Tensor, start: Model, **_: Model) -> Tensor:
            theta = parameters_to_vector(model.parameters())
            penalty = alpha / 2 * (theta - start[0]).square().sum()
            return F.cross_entropy(model(pixels), labels) - dual.dot(theta) + penalty

        ends = {i: world.sgd((x, buffers), i, partial(dynamic, duals[i])) for i in cohort}
        duals |= {i: duals[i] - alpha * (end[0] - x) for i, end in ends.items()}
        h = world.mean(duals)
        x = world.mean({i: end[0] for i, end in ends.items()}, cohort) - h / alpha
        buffers = world.averaged_statistics(ends, cohort)
    return x, buffers


def mimelite(world: World, momentum_decay: float) -> Model:
    (x, buffers), s = world.start, torch.zeros_like(world.start[0])
    for cohort in world.cohorts():

        def mimic(model: nn.Module, pixels: Tensor, labels: Tensor, statistic: Tensor = s, **_: Model) -> Tensor:
            fresh = (1 - momentum_decay) * F.cross_entropy(model(pixels), labels)
            return fresh + momentum_decay * statistic.dot(parameters_to_vector(model.parameters()))

        ends = {i: world.sgd((x, buffers), i, mimic) for i in cohort}
        full = {}
        for i in cohort:
            batches = world.all_batches(i)
            total = sum(len(labels) * gradient((x, buffers), pixels, labels)[0] for pixels, labels in batches)
            full[i] = total / sum(len(labels) for _, labels in batches)
        s = (1 - momentum_decay) * world.mean(full, cohort) + momentum_decay * s
        x = x - world.config.server_lr * world.mean({i: x - end[0] for i, end in ends.items()}, cohort)
        buffers = world.averaged_statistics(ends, cohort)
    return x, buffers


def mifa(world: World, momentum_decay: float = 0.0) -> Model:
    """With the table of all N updates."""
    (x, buffers), momentum, table = world.start, torch.zeros(()), dict[int, Tensor]()
    for cohort in world.cohorts():
        ends = {i: world.sgd((x, buffers), i, plain) for i in cohort}
        table |= {i: x - end[0] for i, end in ends.items()}
        momentum = momentum_decay * momentum + world.mean(table)
        x, buffers = x - world.config.server_lr * momentum, world.averaged_statistics(ends, cohort)
    return x, buffers


def project(vector: Tensor, anchors: list[Tensor]) -> Tensor:
    """argmin |v - vector| with <v, a> >= 0: v = vector + sum z_i a_i where z >= 0 makes v shortest."""
    columns = torch.stack([anchor / anchor.norm() for anchor in anchors if anchor.norm() > 0], dim=1)
    multipliers, _ = nnls(columns.numpy(), -vector.numpy())
    return vector + columns @ torch.from_numpy(multipliers)


def projected_sgd(world: World, start: Model, worker: int, previous: Tensor) -> Model:
    """GradMA-W's worker with all three anchors at every step."""
    x, buffers = start
    for pixels, labels in world.batches(worker):
        g, after = gradient((x, buffers), pixels, labels)
        at_previous, at_global = (gradient((at, buffers), pixels, labels)[0] for at in (previous, start[0]))
        direction = project(g, [at_previous, at_global, x - start[0]])
        previous, x, buffers = x, x - world.config.local_lr * direction, after
    return x, buffers


def gradma(
    world: World,
    *,
    worker: bool,
    server: bool,
    last_local: bool = True,
    momentum_decay: float = 0.0,
    memory_decay: float = 0.0,
) -> Model:
    """GradMA-W, GradMA-S or both, with a slot of memory for every worker."""
    (x, buffers), momentum = world.start, torch.zeros_like(world.start[0])
    last, memory = dict[int, Tensor](), dict[int, Tensor]()
    for cohort in world.cohorts():
        start = (x, buffers)
        if worker:
            ends = {i: projected_sgd(world, start, i, last.get(i, x) if last_local else x) for i in cohort}
        else:
            ends = {i: world.sgd(start, i, plain) for i in cohort}
        updates = {i: x - end[0] for i, end in ends.items()}
        momentum = momentum_decay * momentum + world.mean(updates, cohort)
        if server:
            memory = {i: memory_decay * kept for i, kept in memory.items()}
            memory |= {i: memory.get(i, torch.zeros(())) + update for i, update in updates.items()}
            momentum = project(momentum, list(memory.values()))
        x, buffers = x - world.config.server_lr * momentum, world.averaged_statistics(ends, cohort)
        last |= {i: end[0] for i, end in ends.items()}
    return x, buffers
