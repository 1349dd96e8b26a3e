"""Scores of a model on a whole image set, in pieces that fit the cache, side by side on threads, over all ranks."""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_platform.data.images import Images
from fl_platform.engines.cohort import TrainingPool
from fl_platform.engines.ranks import Ranks
from fl_platform.models.flat import Vector
from fl_platform.models.layers import Pass
from fl_platform.models.network import Network

PIXELS = 800_000  # numbers per forward pass: the activations of the paper's networks stay in the CPU's cache


@dataclass(frozen=True)
class Scores:
    loss: float  # mean over samples
    correct: np.ndarray  # per class
    total: np.ndarray

    @property
    def accuracy(self) -> float:
        return float(self.correct.sum() / self.total.sum())


def batch_of(images: Tensor) -> int:
    """Images per forward pass; the passes are of nearly equal length, so that threads end together."""
    most = max(50, PIXELS // math.prod(images.shape[1:]))
    return math.ceil(len(images) / math.ceil(len(images) / most)) if len(images) else most


@torch.no_grad()
def evaluate(
    network: Network,
    params: Vector,
    buffers: Vector,
    images: Images,
    num_classes: int,
    threads: TrainingPool,
    ranks: Ranks,
) -> Scores:
    """Scores of a model on all images."""
    share = ranks.share(len(images))
    pixels, labels = images.whole()[share], images.all_labels[share]
    weights = network.parameters.views(params)

    def forward(chunk: Tensor) -> Tensor:
        with torch.no_grad():  # known to this thread only
            return network.single(weights, buffers, chunk, Pass(train=False)).logits

    logits = torch.cat(threads.map(forward, torch.split(pixels, batch_of(pixels))))
    hits = labels[logits.argmax(1) == labels]
    counts = [torch.bincount(seen, minlength=num_classes) for seen in (hits, labels)]
    loss = F.cross_entropy(logits, labels, reduction="sum")
    figures = ranks.sum(torch.cat([part.double().view(-1) for part in (loss, *counts)]))
    total_loss, correct, total = np.split(figures.cpu().numpy(), [1, 1 + num_classes])
    return Scores(float(total_loss[0] / total.sum()), correct, total)
