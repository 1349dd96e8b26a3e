"""FedScale: the server scales every coordinate as Adagrad does (an example; `fedadagrad` is the published method).

v_t = v_{t-1} + d_t^2,  x_{t+1} = x_t - server_lr * d_t / (sqrt(v_t) + tau),  d_t = avg_S(x_t - x_i), v_0 = 0.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform import Algorithm, Updates, Vector, option, state, zeros


@dataclass(eq=False)
class FedScale(Algorithm, name="fedscale", label="FedScale"):
    """FedAvg's workers; the server scales each coordinate by the updates it has seen."""

    kind: ClassVar[str] = "server"

    tau: float = option(0.01, "added to the root: limits how far a coordinate moves", above=0)
    squares: Vector = state(zeros)

    def server_direction(self, updates: Updates) -> Vector:
        mean = updates.mean_delta
        self.squares.add_(mean.square())
        return mean / (self.squares.sqrt() + self.tau)

    def diagnostics(self) -> dict[str, float]:
        return {"scale/largest_square": float(self.squares.max())}
