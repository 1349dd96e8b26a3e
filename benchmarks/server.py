"""The server step of GradMA: admission, update of the gradient memory, projection of the momentum."""

import torch

from benchmarks.clock import Meter, in_turns
from benchmarks.table import Entry
from fl_platform.algorithms.memory import GradientMemory

W1_DIMENSION = 178_710


class Server:
    """A full memory and a cohort's updates, as in the middle of a run."""

    def __init__(self, slots: int, dimension: int, cohort: int = 10) -> None:
        self.generator = torch.Generator().manual_seed(0)
        self.common = torch.randn(dimension, generator=self.generator)
        self.memory = GradientMemory(slots, dimension, decay=0.5)
        self.cohort, self.next = min(cohort, slots), 0
        while self.memory.used < slots:
            self.step(self.updates())
        self.deltas = self.updates()

    def updates(self) -> torch.Tensor:
        """Updates that share a direction, like those of workers on one task."""
        noise = torch.randn(self.cohort, len(self.common), generator=self.generator)
        return noise.add_(self.common, alpha=0.1)

    def step(self, deltas: torch.Tensor) -> None:
        size = len(self.memory.owner)
        workers = [(self.next + k) % size for k in range(self.cohort)]
        self.next += self.cohort
        self.memory.admit(workers)
        self.memory.update(workers, deltas)
        self.memory.project(deltas.mean(0))

    def read(self) -> None:
        """One streaming read of the memory: a product with a vector, the fastest there is."""
        torch.mv(self.memory.rows, self.common)


def step(quick: bool) -> list[Entry]:
    server = Server(100, W1_DIMENSION)
    repeats = 5 if quick else 25
    whole, read = in_turns(repeats, lambda: server.step(server.deltas), server.read)
    why = (f"{'one streaming read of the memory':52} {1000 * read.wall:6.2f} ms", *breakdown(server, repeats))
    return [Entry("server_step_at_m_100_d_178710", whole / (read * 2), "x two reads", "<= 2.5", why)]


def breakdown(server: Server, repeats: int) -> list[str]:
    """Mean time of a step's parts."""
    meter = Meter()
    meter.wrap(server, "step", "figures of the mean update")
    meter.wrap(server.memory, "admit", "mem_red")
    meter.wrap(server.memory, "update", "update of the rows")
    meter.wrap(server.memory, "project", "QP, combination with all rows")
    meter.wrap(server.memory, "_products", "products of changed rows and vector with all rows")
    for _ in range(repeats):
        server.step(server.deltas)
    meter.unwrap()
    parts = sorted(meter.spent.items(), key=lambda part: -part[1].wall)
    return [f"{name:52} {1000 * seconds.wall / repeats:6.2f} ms" for name, seconds in parts]
