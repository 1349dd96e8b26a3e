"""FedBN: Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization, ICLR 2021.

https://arxiv.org/abs/2102.07623. Scales, shifts and running statistics of normalisation layers belong to each
worker; the server averages everything else. With a model without normalisation it is FedAvg.
Departures: the server's own model has the scales and shifts of x_0 and averaged statistics (``buffers``), so its
accuracy says little: workers are scored with ``evaluation.workers=true``. Scales and shifts of GroupNorm and
LayerNorm stay local, too.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_platform.algorithms.base import Federation, LocalRun, LocalStart, Start
from fl_platform.algorithms.personal import PersonalPart
from fl_platform.models.flat import Stack, Vector


@dataclass(eq=False)
class FedBN(PersonalPart, name="fedbn", label="FedBN"):
    """Normalisation layers belong to each worker; the server averages the others."""

    equation: ClassVar[str] = r"x_0^i = (x_t \text{ without norms}, n_i),\; n_i \leftarrow \text{norms of } x_I^i"

    def personal_tensors(self, federation: Federation) -> list[bool]:
        return [name in federation.norms for name in federation.layout.names]

    @property
    def keeps(self) -> dict[str, Start]:
        return {**super().keeps, "statistics": Start.GLOBAL_BUFFERS}

    def start_local(self, start: LocalStart) -> tuple[Stack | Vector, Stack | Vector]:
        return super().start_local(start)[0], start.state["statistics"]

    def finish_local(self, run: LocalRun) -> dict[str, Stack]:
        return {**super().finish_local(run), "statistics": run.buffers}
