"""Records what a run uses of its machine, every few seconds between rounds, in its attempt's directory."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch

from fl_platform.runs import metrics
from fl_platform.runs.resources import GPU, GPU_MEMORY, Usage


class ResourceFile(L.Callback):
    """Appends a line to ``path`` after the first round that ends ``every`` seconds or more after the last line."""

    def __init__(self, path: Path, every: float) -> None:
        self.path, self.every = path, every
        self._usage = Usage()

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._usage = Usage()

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if self._usage.seconds < self.every:
            return
        row = {"time": time.time(), metrics.ROUND: pl_module.round, **self._usage.look(), **gpu_use(pl_module.device)}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def gpu_use(device: torch.device) -> dict[str, float]:
    """The memory this process holds on a CUDA device, and how busy the device is where NVIDIA's library tells it."""
    if device.type != "cuda":
        return {}
    values: dict[str, float] = {GPU_MEMORY: torch.cuda.memory_reserved(device)}
    with contextlib.suppress(Exception):  # pynvml is missing, or has an error of its own for a part of a GPU (MIG)
        values[GPU] = torch.cuda.utilization(device)
    return values
