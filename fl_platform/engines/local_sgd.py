"""The step of a worker along its direction."""

from dataclasses import dataclass

import torch

from fl_platform.models.flat import Stack


@dataclass(frozen=True)
class LocalSGD:
    """How a worker steps along a direction, as torch.optim.SGD does along a gradient; the paper's is plain."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether a step is x - local_lr * direction."""
        return self == LocalSGD()

    def step(self, direction: Stack, params: Stack, velocity: Stack | None) -> Stack:
        """The direction in which the workers go, given that of their last step.

        d is shortened to |d| <= clip as torch.nn.utils.clip_grad_norm_ does, d <- d + weight_decay x, and then
        v <- momentum v + d from v = 0, which is returned.
        """
        if self.clip is not None:
            norms = torch.linalg.vector_norm(direction, dim=1, keepdim=True)
            direction = direction * (self.clip / (norms + 1e-6)).clamp(max=1)
        if self.weight_decay:
            direction = direction + self.weight_decay * params
        if self.momentum and velocity is not None:
            direction = direction + self.momentum * velocity
        return direction
