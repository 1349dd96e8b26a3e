"""Scores on each worker's own test samples: of one model in a single pass, or of a model for every worker."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_platform.data.device_samples import DeviceSamples
from fl_platform.data.partition import Partition
from fl_platform.engines.cohort import TrainingPool
from fl_platform.engines.evaluation import batch_of
from fl_platform.engines.ranks import Ranks
from fl_platform.models.flat import Stack, Vector
from fl_platform.models.layers import Pass
from fl_platform.models.network import Network, allowing_tf32


@dataclass(frozen=True)
class WorkerScores:
    """Sums over the test samples of some workers."""

    workers: np.ndarray
    correct: np.ndarray
    loss: np.ndarray
    total: np.ndarray

    @property
    def accuracy(self) -> np.ndarray:
        return np.asarray(self.correct / self.total)

    @property
    def mean_loss(self) -> np.ndarray:
        return np.asarray(self.loss / self.total)

    @staticmethod
    def together(parts: "list[WorkerScores]") -> "WorkerScores":
        """The scores of several groups of workers."""
        names = ("workers", "correct", "loss", "total")
        return WorkerScores(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def with_samples(tests: Partition) -> np.ndarray:
    """The workers that have test samples."""
    return np.flatnonzero(tests.sizes)


@torch.no_grad()
def score_one_model(
    network: Network,
    params: Vector,
    buffers: Vector,
    samples: DeviceSamples,
    tests: Partition,
    threads: TrainingPool,
    ranks: Ranks,
) -> WorkerScores:
    """Scores of one model on every worker's samples: one pass over all of them, added up by worker."""
    share = ranks.share(len(tests.indices))
    indices = torch.from_numpy(tests.indices[share]).to(samples.device)
    owners = np.repeat(np.arange(tests.num_workers), tests.sizes)[share]
    weights = network.parameters.views(params)

    def forward(chunk: Tensor) -> Tensor:
        with torch.no_grad():  # known to this thread only
            return network.single(weights, buffers, samples.some(chunk), Pass(train=False)).logits

    sums = torch.zeros(2, tests.num_workers, dtype=torch.float64, device=samples.device)
    if len(indices):
        first = samples.batch(indices[:1])
        size = batch_of(network, weights, buffers, first.expand(len(indices), *first.shape[1:]))
        with allowing_tf32(network.allows_tf32):
            logits = torch.cat(threads.map(forward, torch.split(indices, size)))
        sums.index_add_(
            1, torch.from_numpy(owners).to(samples.device), hits_and_losses(logits, samples.labels(indices))
        )
    correct, loss = ranks.sum(sums).cpu().numpy()
    workers = with_samples(tests)
    return WorkerScores(workers, correct[workers], loss[workers], tests.sizes[workers])


def hits_and_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """(2, n) of each sample: whether its class was found, and its cross-entropy."""
    hits = (logits.argmax(1) == labels).double()
    return torch.stack([hits, F.cross_entropy(logits, labels, reduction="none").double()])


@torch.no_grad()
def score_own_models(
    params: Stack,
    buffers: Stack,
    samples: DeviceSamples,
    tests: Partition,
    workers: np.ndarray,
    threads: TrainingPool,
    ranks: Ranks,
    *,
    is_stacked: bool,
) -> WorkerScores:
    """Scores of a model for each of the workers on its own samples: one after another, or all at once."""
    share = ranks.share(len(workers))
    sums = torch.zeros(2, len(workers), dtype=torch.float64, device=samples.device)

    def single(row: int) -> None:
        with threads.borrowed() as training, torch.no_grad():
            network = training.network
            indices = torch.from_numpy(tests.of(workers[row])).to(samples.device)
            weights = network.parameters.views(params[row])
            with allowing_tf32(network.allows_tf32):
                logits = network.single(weights, buffers[row], samples.some(indices), Pass(train=False)).logits
            sums[:, row] = hits_and_losses(logits, samples.labels(indices)).sum(1)

    if is_stacked:
        with threads.borrowed() as training:
            sums[:, share] = stacked_sums(
                training.network, params[share], buffers[share], samples, tests, workers[share]
            )
    else:
        threads.map(single, range(share.start, share.stop))
    correct, loss = ranks.sum(sums).cpu().numpy()
    return WorkerScores(workers, correct, loss, tests.sizes[workers])


def stacked_sums(
    network: Network, params: Stack, buffers: Stack, samples: DeviceSamples, tests: Partition, workers: np.ndarray
) -> Tensor:
    """(2, S): hits and losses of every worker's model, all at once; samples are padded to the longest."""
    sizes = tests.sizes[workers]
    positions = np.arange(sizes.max(initial=1))
    is_sample = positions < sizes[:, None]
    places = np.where(is_sample, tests.offsets[workers][:, None] + positions, tests.offsets[workers][:, None])
    indices = torch.from_numpy(tests.indices[places]).to(samples.device)
    keys = torch.zeros(len(workers), dtype=torch.int64, device=samples.device)
    with allowing_tf32(network.allows_tf32):
        weights = network.parameters.views(params)
        logits = network.stacked(weights, buffers, samples.batch(indices), None, keys, train=False).logits
    found = hits_and_losses(logits.flatten(0, 1), samples.labels(indices).flatten()).view(2, *indices.shape)
    return (found * torch.from_numpy(is_sample).to(samples.device)).sum(2)
