"""FedClip: FedAvg with clipped local gradients."""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform import Algorithm, LocalStep, Stack, option


@dataclass(eq=False)
class FedClip(Algorithm, name="fedclip", label="FedClip"):
    """Workers step along g * min(1, max_norm / |g|)."""

    kind: ClassVar[str] = "worker"

    max_norm: float = option(1.0, "longest direction of a local step", above=0, grid=(0.1, 1.0, 10.0))

    def local_direction(self, step: LocalStep) -> Stack:
        norms = step.gradient.norm(dim=1, keepdim=True)  # (S, 1): one norm per worker
        step.record("clip/share", (norms > self.max_norm).float().mean())
        return step.gradient * (self.max_norm / norms.clamp_min(self.max_norm))
