"""MimeLite and Mime with SGD momentum: Karimireddy et al., Breaking the Centralized Barrier for Cross-Device FL, 2021.

https://arxiv.org/abs/2008.03606

MimeLite: x_{tau+1} = x_tau - local_lr ((1 - beta) g + beta s), s fixed during the round;
s <- (1 - beta) avg_S(grad f_i(x_t)) + beta s, with each sampled worker's gradient over its whole data at x_t.
``convention=heavy_ball`` has g + beta s and s <- avg_S(grad f_i) + beta s instead, which equals the default at
local_lr / (1 - beta). ``statistic=round`` averages the gradients of the round's own batches at x_t instead of a
pass over the worker's data: cheaper, not the published method.
Gradients are taken in training mode, running statistics untouched.

Mime has two exchanges in a round. First every sampled worker sends its gradient over its whole data at x_t, and
receives their mean c = avg_S(grad f_i(x_t)); then it takes steps with gradients corrected as by SVRG,
g(x_tau) - g(x_t) + c for g, where g(x_tau) and g(x_t) are gradients on the same batch (Algorithm 1).
Departures: the grid of beta is the one that GradMA's paper has for MimeLite. With dropout these two have masks of
their own. Faults and compression act on the updates, not on the gradients of the first exchange.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Algorithm, LocalRun, LocalStep, LocalSurvey, Updates, state, zeros
from fl_platform.config.options import option
from fl_platform.models.flat import Stack, Vector
from fl_platform.paper.methods import Group


@dataclass(eq=False)
class MimeLite(Algorithm, name="mimelite", label="MimeLite"):
    """Workers mimic server momentum, whose state is fixed while they train."""

    equation: ClassVar[str] = (
        r"x_\tau - \eta_l ((1 - \beta) g + \beta s),\; s \leftarrow (1 - \beta) \nabla f + \beta s"
    )
    kind: ClassVar[str] = "both"
    downloads: ClassVar[int] = 2
    uploads: ClassVar[int] = 2
    sends: ClassVar[tuple[str, ...]] = ("gradient",)

    momentum_decay: float = option(0.5, "beta", at_least=0, below=1, grid=(0.1, 0.5, 0.9))
    convention: str = option(
        "ema", "exponential average as in the paper, or heavy ball as in public code", choices=("ema", "heavy_ball")
    )
    statistic: str = option(
        "full",
        "gradient sent to the server: over all of the worker's data, or its round's batches",
        choices=("full", "round"),
    )
    momentum: Vector = state(zeros)

    @property
    def fresh(self) -> float:
        """Weight of a new gradient."""
        return 1 - self.momentum_decay if self.convention == "ema" else 1.0

    def local_direction(self, step: LocalStep) -> Stack:
        return self.fresh * step.gradient + self.momentum_decay * self.momentum

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        gradient = run.full_gradient if self.statistic == "full" else run.round_gradient
        return {"gradient": gradient(run.global_params)}

    def mean_gradient(self, updates: Updates) -> Vector:
        """avg_S(grad f_i(x_t))."""
        return updates.average(updates.sent["gradient"])

    def server_direction(self, updates: Updates) -> Vector:
        self.momentum.mul_(self.momentum_decay).add_(self.mean_gradient(updates), alpha=self.fresh)
        return super().server_direction(updates)


@dataclass(eq=False)
class Mime(MimeLite, name="mime", label="Mime"):
    """MimeLite with variance reduction: a first exchange tells every worker the mean gradient at x_t."""

    group: ClassVar[str] = Group.WORKER_CORRECTION
    equation: ClassVar[str] = r"x_\tau - \eta_l ((1 - \beta) (g(x_\tau) - g(x_t) + \overline{\nabla f}(x_t)) + \beta s)"
    gradients: ClassVar[int] = 2
    downloads: ClassVar[int] = 3
    sends: ClassVar[tuple[str, ...]] = ()

    surveyed: Vector = state(zeros)

    def survey_local(self, survey: LocalSurvey) -> Stack:
        gradient = survey.full_gradient if self.statistic == "full" else survey.round_gradient
        return gradient(survey.global_params)

    def receive_survey(self, mean: Vector) -> None:
        self.surveyed = mean

    def local_direction(self, step: LocalStep) -> Stack:
        corrected = step.gradient - step.gradient_at(step.global_params) + self.surveyed
        return self.fresh * corrected + self.momentum_decay * self.momentum

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        return {}

    def mean_gradient(self, updates: Updates) -> Vector:
        return self.surveyed
