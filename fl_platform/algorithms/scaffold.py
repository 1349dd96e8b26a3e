"""Scaffold: Karimireddy et al., Stochastic Controlled Averaging for Federated Learning, 2020 (option II).

https://arxiv.org/abs/1910.06378

x_{tau+1} = x_tau - local_lr (g - c_i + c);  c_i+ = c_i - c + (x_t - x_I) / (I_i local_lr), which is the mean of the
local gradients, I_i the number of steps of worker i (with local momentum, the sum of its gradients' weights);
c <- c + sum_{i in S_t} q_i (c_i+ - c_i), so that c is the mean of all c_i. Parameters only.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, LocalRun, LocalStep, Start, Updates, state, zeros
from fl_platform.models.flat import Stack, Vector


@dataclass(eq=False)
class Scaffold(Algorithm, name="scaffold", label="Scaffold"):
    """Control variates correct each worker's gradient for its drift."""

    equation: ClassVar[str] = r"x_\tau - \eta_l (g - c_i + c)"
    downloads: ClassVar[int] = 2
    uploads: ClassVar[int] = 2
    sends: ClassVar[tuple[str, ...]] = ("control_change",)

    control: Vector = state(zeros)

    @property
    def keeps(self) -> dict[str, Start]:
        return {"control": Start.ZEROS}

    def local_direction(self, step: LocalStep) -> Stack:
        return step.gradient - step.state["control"] + self.control

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        change = run.mean_direction - self.control
        return {"control": run.state["control"] + change, "control_change": change}

    def server_direction(self, updates: Updates) -> Vector:
        direction = super().server_direction(updates)
        self.control += updates.population_sum(updates.sent["control_change"])
        return direction
