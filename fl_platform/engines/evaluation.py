"""Scores of a model on all samples of a set, in pieces that fit the cache, side by side on threads, over all ranks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_platform.data.device_samples import DeviceSamples
from fl_platform.engines.cohort import TrainingPool
from fl_platform.engines.further_metrics import further_metrics
from fl_platform.engines.ranks import Ranks
from fl_platform.kernels import onednn
from fl_platform.models.code import code_of
from fl_platform.models.flat import Vector
from fl_platform.models.layers import Pass
from fl_platform.models.network import Network, allowing_tf32

PIXELS = 800_000
"""Numbers per forward pass on a CPU: the activations of the paper's networks stay in its cache."""
NUMBERS_PER_TOKEN = 32
"""What a token id counts for: an embedding makes so many numbers of it, or a few times more."""
DEVICE_PIXELS = 1 << 22
"""The same on an accelerator, where launches count and not a cache: a gigabyte of activations of ResNet-20. Not
measured on one."""


@dataclass(frozen=True)
class Scores:
    """What an evaluation found."""

    loss: float  # mean over samples
    correct: np.ndarray  # per class
    total: np.ndarray
    further: Mapping[str, float] = field(default_factory=dict)  # see further_metrics

    @property
    def accuracy(self) -> float:
        return float(self.correct.sum() / self.total.sum())

    @staticmethod
    def mean(parts: Sequence[tuple["Scores", int]]) -> "Scores":
        """The mean of several models' scores on the same samples, each taken so many times."""
        count = sum(times for _, times in parts)
        return Scores(
            sum(scores.loss * times for scores, times in parts) / count,
            np.sum([scores.correct * times for scores, times in parts], axis=0) / count,
            parts[0][0].total,
            {
                name: sum(scores.further[name] * times for scores, times in parts) / count
                for name in parts[0][0].further
            },
        )


def batch_of(inputs: Tensor) -> int:
    """Samples per forward pass; the passes are of nearly equal length, so that threads end together."""
    most_numbers = PIXELS if code_of(inputs) == "cpu" else DEVICE_PIXELS
    numbers = math.prod(inputs.shape[1:])
    if not inputs.is_floating_point():
        numbers *= NUMBERS_PER_TOKEN
    most = max(50, most_numbers // numbers)
    return math.ceil(len(inputs) / math.ceil(len(inputs) / most)) if len(inputs) else most


@torch.no_grad()
def evaluate(
    network: Network,
    params: Vector,
    buffers: Vector,
    samples: DeviceSamples,
    num_classes: int,
    threads: TrainingPool,
    ranks: Ranks,
    further: Sequence[str] = (),
) -> Scores:
    """Scores of a model on all samples."""
    share = ranks.share(len(samples))
    inputs, labels = samples.whole()[share], samples.all_labels[share]
    weights = network.parameters.views(params)

    def forward(chunk: Tensor) -> Tensor:
        with torch.no_grad(), onednn.Linear():  # known to this thread only
            return network.single(weights, buffers, chunk, Pass(train=False)).logits

    with allowing_tf32(network.allows_tf32):
        logits = torch.cat(threads.map(forward, torch.split(inputs, batch_of(inputs))))
    is_hit = (logits.argmax(1) == labels).double()
    sums = torch.zeros(1 + 2 * num_classes, dtype=torch.float64, device=logits.device)
    sums[0] = F.cross_entropy(logits, labels, reduction="sum")
    sums[1 : 1 + num_classes].index_add_(0, labels, is_hit)  # no bincount, whose length the host would wait for
    sums[1 + num_classes :].index_add_(0, labels, torch.ones_like(is_hit))
    ranks.sum(sums)
    total_loss, correct, total = np.split(sums.cpu().numpy(), [1, 1 + num_classes])
    loss = float(total_loss[0] / total.sum())
    if not further:
        return Scores(loss, correct, total)
    logits = ranks.whole(logits, len(samples))
    found = further_metrics(further, logits, samples.all_labels, loss, correct, total)
    return Scores(loss, correct, total, found)
