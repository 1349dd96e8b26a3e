"""Faulty workers, for studying what they do to an algorithm: updates spoiled on their way to the server."""

import numpy as np
import torch

from fl_platform.config.schema import FaultsConfig
from fl_platform.engines.training import LocalResult
from fl_platform.seeding import generator


def spoil(result: LocalResult, faults: FaultsConfig, seed: int, round: int) -> int:
    """Replace the update of each worker, with a fixed probability, by a faulty one; returns how many."""
    if faults.kind == "none":
        return 0
    struck = generator(seed, "faults", round).random(len(result.delta)) < faults.probability
    rows = torch.from_numpy(np.flatnonzero(struck)).to(result.delta.device)
    factor = {"nan": float("nan"), "zeros": 0.0, "sign_flip": -1.0, "huge": faults.scale}[faults.kind]
    result.delta[rows] *= factor
    return len(rows)


def finite_rows(result: LocalResult) -> np.ndarray:
    """Positions of the workers whose update, statistics and uploads are all numbers."""
    stacks = (result.delta, result.buffers, *result.outcome.values())
    finite = torch.stack([torch.isfinite(stack).all(dim=1) for stack in stacks]).all(dim=0)
    return np.flatnonzero(finite.cpu().numpy())


def take(result: LocalResult, rows: np.ndarray) -> LocalResult:
    """The result of some of the workers."""
    index = torch.from_numpy(rows).to(result.delta.device)
    return LocalResult(
        delta=result.delta[index],
        buffers=result.buffers[index],
        loss=result.loss[index],
        outcome={name: stack[index] for name, stack in result.outcome.items()},
        records=result.records,
        gradient_passes=result.gradient_passes,
    )
