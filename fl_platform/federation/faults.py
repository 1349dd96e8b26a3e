"""Faulty workers, for studying what they do to an algorithm: updates changed on their way to the server.

Kinds of ``faults.kind``, for a faulty worker's update d_i:

    nan            NaN in every coordinate
    zeros          0
    sign_flip      -d_i
    huge           scale * d_i
    gaussian       normal noise with standard deviation ``faults.std`` in every coordinate
    same_value     ``faults.value`` in every coordinate (Li et al., RSA, 2019, https://arxiv.org/abs/1811.03761)
    alie           mean - z * std of the sound updates of the round, per coordinate: "A Little Is Enough" (Baruch et
                   al., 2019, https://arxiv.org/abs/1902.06156); the faulty workers know all updates and collude,
                   where the authors' know their own. Their code has z = 1.5 by default and the same standard
                   deviation, over n (github.com/moranant/attacking_distributed_learning)
    label_flip     d_i itself, but the worker trains on labels K - 1 - y; see ``flip_labels``

Faults change the update d_i alone, or what a method sends in its place (MIFA, FedSpeed): running statistics and what a
method sends beside its update arrive as they are.
"""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from fl_platform.config.schema import Config
from fl_platform.data.partition import Partition
from fl_platform.data.samples import Samples
from fl_platform.engines.work import LocalResult
from fl_platform.federation.uploads import UPDATE
from fl_platform.models.flat import Stack
from fl_platform.seeding import generator, torch_generator


def inject_faults(result: LocalResult, config: Config, round: int, sent_as: str = UPDATE) -> tuple[LocalResult, int]:
    """Replace the updates of the round's faulty workers, ``sent_as`` this; returns the result and how many they are."""
    rows = np.flatnonzero(faulty(result.workers, config, round))
    if config.faults.kind == "label_flip":
        return result, len(rows)
    index = torch.from_numpy(rows).to(result.delta.device)
    sent = (result.delta if sent_as == UPDATE else result.outcome[sent_as]).clone()  # hooks were given the workers' own
    sent[index] = faulty_updates(sent, rows, index, config, round)
    if sent_as == UPDATE:
        return replace(result, delta=sent), len(rows)
    return replace(result, outcome={**result.outcome, sent_as: sent}), len(rows)


def faulty(workers: np.ndarray, config: Config, round: int) -> np.ndarray:
    """Return for each worker that reports whether it is faulty this round."""
    if config.faults.workers == "fixed":
        return np.isin(workers, fixed_workers(config))
    return generator(config.seed, "faults", round).random(len(workers)) < config.faults.probability


def fixed_workers(config: Config) -> np.ndarray:
    """Return the workers that are faulty in every round: the configured share of all N, to the nearest whole number."""
    count = math.floor(config.faults.probability * config.population + 0.5)
    return generator(config.seed, "faulty workers").permutation(config.population)[:count]


def faulty_updates(delta: Stack, rows: np.ndarray, index: Tensor, config: Config, round: int) -> Stack:
    """Return what arrives instead of the given rows of ``delta``."""
    faults = config.faults
    if faults.kind == "same_value":
        return torch.full_like(delta[index], faults.value)
    if faults.kind == "gaussian":
        shape, source = (len(rows), delta.shape[1]), torch_generator(config.seed, "fault noise", round)
        return faults.std * torch.randn(shape, generator=source, dtype=torch.float64).to(delta)
    if faults.kind == "alie":
        sound = np.setdiff1d(np.arange(len(delta)), rows)
        known = delta[torch.from_numpy(sound if len(sound) else rows).to(delta.device)]
        z = alie_deviations(len(delta), len(rows)) if faults.deviations is None else faults.deviations
        return (known.mean(0) - z * known.std(0, correction=0)).expand(len(rows), -1)
    factor = {"nan": float("nan"), "zeros": 0.0, "sign_flip": -1.0, "huge": faults.scale}[faults.kind]
    return delta[index] * factor


def alie_deviations(num_workers: int, num_faulty: int) -> float:
    """Return z_max of Baruch et al., equation 3: the largest deviation that a majority vote does not notice.

    With s = floor(n / 2 + 1) - m sound workers needed as supporters, z_max = Phi^-1((n - m - s) / (n - m)). It is 0
    where the faulty workers are too few to gain anything and where they are a majority by themselves.
    """
    sound = num_workers - num_faulty
    supporters = num_workers // 2 + 1 - num_faulty
    if supporters <= 0 or supporters >= sound:
        return 0.0
    return max(0.0, NormalDist().inv_cdf((sound - supporters) / sound))


def with_faulty_labels(train: Samples, partition: Partition, num_classes: int, config: Config) -> Samples:
    """Return the training set, with ``faults.kind=label_flip`` as faulty workers see it.

    The partition is of what workers train on: samples that they are scored on keep their labels.
    """
    if config.faults.kind != "label_flip":
        return train
    return replace(train, labels=flip_labels(train.labels, partition, num_classes, config))


def flip_labels(labels: Tensor, partition: Partition, num_classes: int, config: Config) -> Tensor:
    """Return the training labels with y replaced by K - 1 - y in the data of the faulty workers."""
    flipped = labels.clone()
    for worker in fixed_workers(config):
        index = torch.from_numpy(partition.of(worker))
        flipped[index] = num_classes - 1 - flipped[index]
    return flipped


def finite_rows(result: LocalResult) -> np.ndarray:
    """Positions of the workers whose update, statistics and uploads are all numbers."""
    stacks = (result.delta, result.buffers, *result.outcome.values())
    finite = torch.stack([torch.isfinite(stack).all(dim=1) for stack in stacks]).all(dim=0)
    return np.flatnonzero(finite.cpu().numpy())
