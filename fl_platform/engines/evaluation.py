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
from fl_platform.engines.training import add_up
from fl_platform.kernels import convolution, linear, pooling
from fl_platform.kernels.perceptron import Perceptron
from fl_platform.models.code import code_of
from fl_platform.models.flat import Vector
from fl_platform.models.layers import Pass
from fl_platform.models.network import Network, Weights, allowing_tf32

PIXELS = 800_000
"""Numbers per forward pass on a CPU."""
ACTIVATIONS = 6_400_000
"""Bytes of the largest tensor of such a pass: it stays in the cache, and in memory that malloc keeps for the next."""
WEIGHTS = 72_000
"""Parameters per sample up to which a pass is made shorter for that: layers rearrange their weights in every one."""
NUMBERS_PER_TOKEN = 32
"""What a token id counts for: an embedding makes so many numbers of it, or a few times more."""
DEVICE_PIXELS = 1 << 22
"""The same on an accelerator, where launches count and not a cache: a gigabyte of activations of ResNet-20. Not
measured on one."""

FEW_CLASSES = 16
"""Below it a softmax over the classes of a sample is computed number by number on a CPU: a vector holds as many."""


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


def batch_of(network: Network, weights: Weights, buffers: Vector, inputs: Tensor) -> int:
    """Samples per forward pass; the passes are of nearly equal length, so that threads end together."""
    numbers = math.prod(inputs.shape[1:])
    if not inputs.is_floating_point():
        numbers *= NUMBERS_PER_TOKEN
    if code_of(inputs) == "cpu":
        size = (network.autocast or buffers.dtype).itemsize
        held = ACTIVATIONS // (size * network.widest(weights, buffers, inputs))
        most = min(PIXELS // numbers, max(network.parameters.dim // WEIGHTS, held))
    else:
        most = DEVICE_PIXELS // numbers
    most = max(50, most)
    return math.ceil(len(inputs) / math.ceil(len(inputs) / most)) if len(inputs) else most


def logits_of(network: Network, weights: Weights, buffers: Vector, inputs: Tensor) -> Tensor:
    """The logits of some samples, by kernels for passes without gradient."""
    forward_pass = Pass(train=False, max_pool2d=pooling.max_pool2d, linear=linear.linear, maxima=convolution.maxima)
    with torch.no_grad():
        return network.single(weights, buffers, inputs, forward_pass).logits


def summed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of all samples; of few classes on a CPU with samples side by side, which vectors hold."""
    if code_of(logits) == "cpu" and logits.shape[1] < FEW_CLASSES:
        logits, labels = logits.t().unsqueeze(0), labels.unsqueeze(0)
    return F.cross_entropy(logits, labels, reduction="sum")


@torch.no_grad()
def sums_of(logits: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The loss of some samples, their hits by class and their number by class, in float64."""
    is_hit = (logits.argmax(1) == labels).double()
    sums = torch.zeros(1 + 2 * num_classes, dtype=torch.float64, device=logits.device)
    sums[0] = summed_loss(logits, labels)
    sums[1 : 1 + num_classes].index_add_(0, labels, is_hit)  # no bincount, whose length the host would wait for
    sums[1 + num_classes :].index_add_(0, labels, torch.ones_like(is_hit))
    return sums


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
    perceptron = Perceptron.of(network, params.dtype) if inputs.device.type == "cpu" else None  # as in training

    def score(piece: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor | None]:
        if perceptron is not None:
            return perceptron.scores(params, buffers, *piece, num_classes, keeps_logits=bool(further))
        logits = logits_of(network, weights, buffers, piece[0])
        return sums_of(logits, piece[1], num_classes), logits if further else None

    with allowing_tf32(network.allows_tf32):
        size = batch_of(network, weights, buffers, inputs)
        pieces = zip(torch.split(inputs, size), torch.split(labels, size), strict=True)
        sums, logits = zip(*threads.map(score, pieces), strict=True)
    summed = add_up(sums)
    ranks.sum(summed)
    total_loss, correct, total = np.split(summed.cpu().numpy(), [1, 1 + num_classes])
    loss = float(total_loss[0] / total.sum())
    if not further:
        return Scores(loss, correct, total)
    found = further_metrics(
        further, ranks.whole(torch.cat(logits), len(samples)), samples.all_labels, loss, correct, total
    )
    return Scores(loss, correct, total, found)
