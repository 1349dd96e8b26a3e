"""Compressed uploads, for every method: what a worker sends is replaced by something shorter, with error feedback.

    q_i = C(v_i + e_i),   e_i <- v_i + e_i - q_i,   e_i = 0 before a worker's first upload;

the server sees q_i in place of v_i, which is the update and everything else a method sends (``sends``), each with an
error memory of its own on the worker. Without error feedback e_i stays 0. C is one of

    topk       the k = ceil(fraction * d) entries of largest magnitude, the others 0: Stich et al., Sparsified SGD with
               Memory, 2018 (https://arxiv.org/abs/1809.07599); fraction 1 changes nothing
    quantise   with b bits, s = 2^(b-1) - 1 levels and m = max |v|: sign(v) * m / s * floor(s |v| / m + u), u uniform in
               [0, 1), which is v on average: Alistarh et al., QSGD, 2017 (https://arxiv.org/abs/1610.02132)

Error feedback: Karimireddy et al., Error Feedback Fixes SignSGD, 2019 (https://arxiv.org/abs/1901.09847). It suits C
whose error is smaller than v; that of a coarse ``quantise`` is not, so the default has it for ``topk`` only.

Departures: one scale m for the whole vector where QSGD has a 2-norm per bucket; fixed width instead of Elias coding.
Downloads and running statistics are not compressed. Faults happen afterwards: a faulty worker sends what it likes.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import numpy as np
import torch
from torch import Tensor

from fl_platform import noise
from fl_platform.algorithms.base import Algorithm, Start
from fl_platform.config.groups import CompressionConfig
from fl_platform.config.schema import Config
from fl_platform.engines.transfer import to_device
from fl_platform.engines.work import LocalResult
from fl_platform.federation.uploads import UPDATE, travelling
from fl_platform.models.flat import Stack, Vector
from fl_platform.runs import metrics
from fl_platform.seeding import stream_keys


def error_memory(algorithm: Algorithm, compression: CompressionConfig) -> dict[str, Start]:
    """Return the state that workers keep for error feedback: a vector for everything that travels."""
    if compression.name == "none" or not compression.error_feedback:
        return {}
    return {memory_of(name): Start.ZEROS for name in travelling(algorithm)}


def memory_of(name: str) -> str:
    """Name of the state that holds the error of a vector that travels."""
    return f"compression_error.{name}"


def compress(
    result: LocalResult, memory: Mapping[str, Stack], algorithm: Algorithm, config: Config, round: int
) -> LocalResult:
    """Return the result with compressed uploads and the workers' new errors among its outcome."""
    outcome, delta = dict(result.outcome), result.delta
    for name in travelling(algorithm):
        wanted = delta if name == UPDATE else outcome[name]
        if memory_of(name) in memory:
            wanted = wanted + memory[memory_of(name)]
        sent = compressed_part(wanted, algorithm.private, name, result.workers, config, round)
        error = wanted - sent
        if memory_of(name) in memory:
            outcome[memory_of(name)] = error
        lengths = [torch.linalg.vector_norm(stack, dim=1) for stack in (error, wanted)]
        result.records.record(metrics.COMPRESSION_ERROR, lengths[0] / lengths[1].clamp_min(1e-30))
        if name == UPDATE:
            delta = sent
        else:
            outcome[name] = sent
    return replace(result, delta=delta, outcome=outcome)


def compressed_part(
    stack: Stack, private: Tensor | None, name: str, workers: np.ndarray, config: Config, round: int
) -> Stack:
    """Return C of every row, as of a shorter one without the private numbers, which stay zero."""
    if private is None:
        return compressed(stack, name, workers, config, round)
    if bool(private.all()):
        return torch.zeros_like(stack)
    places = (~private).nonzero().flatten()
    part = compressed(stack[:, places], name, workers, config, round)
    return torch.zeros_like(stack).index_copy(1, places, part)


def compressed(stack: Stack, name: str, workers: np.ndarray, config: Config, round: int) -> Stack:
    """Return C of every row."""
    if config.compression.name == "topk":
        return largest_entries(stack, num_kept(stack.shape[1], config.compression.fraction))
    [keys] = to_device([stream_keys(1, workers, config.seed, "compression", name, round)[0]], stack.device)
    return quantised(stack, config.compression.bits, keys)


def num_kept(dim: int, fraction: float) -> int:
    """Return k: at least one entry of ``dim``. The fraction is the decimal that was written: 0.07 of 100 is 7."""
    return max(1, math.ceil(Decimal(str(fraction)) * dim))


def largest_entries(stack: Stack, count: int) -> Stack:
    """Return every row with all but its ``count`` entries of largest magnitude set to zero."""
    if count == stack.shape[1]:
        return stack
    kept = stack.abs().topk(count, dim=1, sorted=False).indices
    return torch.zeros_like(stack).scatter(1, kept, stack.gather(1, kept))


def quantised(stack: Stack, bits: int, keys: Vector) -> Stack:
    """Return every row rounded at random to 2^bits - 1 evenly spaced values between -m and m, m its largest magnitude.

    The rounding of row i is a function of ``keys[i]`` alone, the same on every device.
    """
    levels = 2 ** (bits - 1) - 1
    largest = stack.abs().amax(1, keepdim=True)
    scale = largest.clamp_min(torch.finfo(stack.dtype).tiny) / levels
    chance = noise.bits(keys, stack.shape[1]).to(stack.dtype).div(1 << 31)
    steps = (stack.abs() / scale + chance).floor().clamp_(max=levels)
    signed: Stack = steps * stack.sign() * scale
    return signed


def encoded_bytes(dim: int, element_size: int, compression: CompressionConfig) -> int:
    """Return the bytes of one vector of ``dim`` numbers as it is sent.

    topk: the k values, and the shorter of k packed indices and a map of dim bits; never more than the whole vector.
    quantise: ``bits`` for each entry and one number for the scale.
    """
    if dim == 0:
        return 0
    whole = 8 * element_size * dim
    if compression.name == "topk":
        kept = num_kept(dim, compression.fraction)
        places = min(kept * max(1, math.ceil(math.log2(dim))), dim)
        whole = min(whole, 8 * element_size * kept + places)
    elif compression.name == "quantise":
        whole = compression.bits * dim + 8 * element_size
    return -(-whole // 8)
