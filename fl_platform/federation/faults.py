"""Faulty workers, for studying what they do to an algorithm: updates changed on their way to the server."""

from dataclasses import replace

import numpy as np
import torch

from fl_platform.config.schema import FaultsConfig
from fl_platform.engines.training import LocalResult
from fl_platform.seeding import generator


def inject_faults(result: LocalResult, faults: FaultsConfig, seed: int, round: int) -> tuple[LocalResult, int]:
    """Replace the update of each worker, with a fixed probability, by a faulty one; returns the result and how many."""
    if faults.kind == "none":
        return result, 0
    is_faulty = generator(seed, "faults", round).random(len(result.delta)) < faults.probability
    rows = torch.from_numpy(np.flatnonzero(is_faulty)).to(result.delta.device)
    factor = {"nan": float("nan"), "zeros": 0.0, "sign_flip": -1.0, "huge": faults.scale}[faults.kind]
    delta = result.delta.clone()  # the algorithm was given the workers' own
    delta[rows] *= factor
    return replace(result, delta=delta), len(rows)


def finite_rows(result: LocalResult) -> np.ndarray:
    """Positions of the workers whose update, statistics and uploads are all numbers."""
    stacks = (result.delta, result.buffers, *result.outcome.values())
    finite = torch.stack([torch.isfinite(stack).all(dim=1) for stack in stacks]).all(dim=0)
    return np.flatnonzero(finite.cpu().numpy())
