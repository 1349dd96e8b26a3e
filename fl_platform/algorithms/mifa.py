"""MIFA: Gu et al., Fast Federated Learning in the Presence of Arbitrary Device Unavailability, 2021.

https://arxiv.org/abs/2106.04159

The server descends along the mean of every worker's latest update, d = avg_N(G_i), G_i = 0 before the first report:
round 0 moves S/N as far as FedAvg. Workers keep G_i and send the change d^i - G_i. Departures: no waiting until every
worker has reported once, constant rates.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch

from fl_platform.algorithms.base import Algorithm, LocalRun, Start, Updates, state, zeros
from fl_platform.algorithms.momentum import SlowMomentum
from fl_platform.models.flat import Stack, Vector


@dataclass(eq=False)
class Mifa(Algorithm, name="mifa", label="MIFA"):
    """The server averages the latest update of all workers, however old."""

    equation: ClassVar[str] = r"x_{t+1} = x_t - \eta_g\, \mathrm{avg}_N(G_i),\; G_i \text{ the latest } d_i"
    kind: ClassVar[str] = "server"
    sends: ClassVar[tuple[str, ...]] = ("update_change",)

    # float64: the sum of changes must not drift from the mean of the table
    mean_update: Vector = state(partial(zeros, dtype=torch.float64))

    @property
    def keeps(self) -> dict[str, Start]:
        return {"latest_update": Start.ZEROS}

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        return {"latest_update": run.delta, "update_change": run.delta - run.state["latest_update"]}

    def server_direction(self, updates: Updates) -> Vector:
        self.mean_update += updates.population_sum(updates.sent["update_change"])
        return self.mean_update.to(updates.delta.dtype)


@dataclass(eq=False)
class MifaM(SlowMomentum, Mifa, name="mifam", label="MIFAM"):
    """MIFA with slow momentum on the mean of the table."""
