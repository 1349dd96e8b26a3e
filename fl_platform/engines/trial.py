"""A short timed trial of both engines on the device at hand, kept in the user's cache for the runs to come."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fl_platform.data.streams import BatchPlan
from fl_platform.engines.device_memory import DeviceMemory, is_out_of_memory
from fl_platform.engines.training import LocalTraining
from fl_platform.engines.work import LocalResult, LocalWork
from fl_platform.kernels.recycled import Recycler
from fl_platform.models.flat import Vector

STEPS = 2
REPEATS = 2  # after one that warms up


class Taken(NamedTuple):
    """What a trial found: seconds by engine, and whether they are of all workers; nothing where not one fits."""

    seconds: dict[str, float]
    is_whole: bool = True


def device_name(device: torch.device) -> str:
    """What a card is called by its driver; for other devices their type."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def seconds_of(
    trainings: Mapping[str, LocalTraining], params: Vector, buffers: Vector, workers: int, batch: int
) -> Taken:
    """Seconds of ``STEPS`` steps of that many workers with each engine, the faster of a few.

    Where memory does not suffice for all workers at once, both engines are tried with half as many; where it does not
    for one, the run itself will say so.
    """
    memory, tried = DeviceMemory(params.device), workers
    while tried > 0:
        try:
            seconds = {
                name: fastest(training, params, buffers, tried, batch, 1 if name == "loop" else tried)
                for name, training in trainings.items()
            }
            return Taken(seconds, is_whole=tried == workers)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        tried //= 2
        memory.release()
    return Taken({}, is_whole=False)


def fastest(training: LocalTraining, params: Vector, buffers: Vector, workers: int, batch: int, chunk: int) -> float:
    """Seconds of the fastest repetition, ``chunk`` workers at once as in a round."""
    taken = []
    for _ in range(1 + REPEATS):
        wait_for(params)
        begin = time.perf_counter()
        for first in range(0, workers, chunk):
            result = train_some(training, params, buffers, np.arange(first, first + chunk), batch)
        wait_for(result.loss)
        taken.append(time.perf_counter() - begin)
    return min(taken[1:])


def train_some(training: LocalTraining, params: Vector, buffers: Vector, workers: Any, batch: int) -> LocalResult:
    """Train workers on full batches of the first samples; nothing of a run is changed."""
    count = min(batch, len(training.samples))
    indices = np.broadcast_to(np.arange(count), (STEPS, len(workers), count))
    work = LocalWork(
        round=0,
        workers=workers,
        plan=BatchPlan(
            np.ascontiguousarray(indices), np.full((STEPS, len(workers)), count), np.full(len(workers), STEPS)
        ),
        local_lr=0.0,
        global_params=params,
        global_buffers=buffers,
        buffers=buffers,
        relative_sizes=params.new_ones(len(workers)),
        state={},
        gradient_passes=np.zeros(len(workers), np.int64),
    )
    result = LocalResult.empty(work, {}, Recycler())
    training.train(work, result, slice(0, len(workers)))
    return result


def wait_for(tensor: Vector) -> None:
    """Return when the device has computed the tensor."""
    tensor.sum().item()


def kept(place: Path, about: Mapping[str, Any], trial: Callable[[], Taken]) -> dict[str, float]:
    """The seconds of a trial under the same circumstances, from the cache or taken now.

    A trial for which memory did not suffice is not kept: other programs may have held it.

    ``place`` is the directory of the cache and ``about`` what the result depends on. A cache that cannot be read or
    written costs a trial, never an error.
    """
    text = json.dumps(dict(about), sort_keys=True)
    file = place / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["about"] == json.loads(text):
            return {str(name): float(value) for name, value in found["seconds"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    seconds, is_whole = trial()
    if not is_whole:
        return seconds
    try:
        place.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"about": json.loads(text), "seconds": seconds}, indent=1), encoding="utf-8")
    except OSError:
        pass
    return seconds
