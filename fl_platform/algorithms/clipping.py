"""Vectors shortened to a largest norm: what norm clipping and differential privacy share."""

import torch
from torch import Tensor

from fl_platform.models.flat import Stack, Vector


def clip_factors(stack: Stack, max_norm: float) -> Vector:
    """(S,): min(1, max_norm / |v_i|) of every row."""
    norms: Tensor = torch.linalg.vector_norm(stack, dim=1)
    return (max_norm / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1)
