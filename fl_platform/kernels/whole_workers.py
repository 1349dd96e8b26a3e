"""Workers of perceptrons in one call, from x_t to their updates: batches are gathered and steps taken without Python.

Two kinds: steps along the plain gradient, as FedAvg's workers take them, and along projected gradients, x - rate
QP(g; [g(x_before), g(x_t), x - x_t]), as GradMA's do. The plain twins are ``LocalTraining.train`` with the methods'
hooks; both have the same bits.

What it saves: batches come one at a time and stay in the second cache, nothing is copied between them, and nothing is
called for a step or a worker. The first step reads x_t where it lies. A projection takes the drift where it is
multiplied and the step where the anchors are combined, so neither they nor the direction are written.

Gain (``python -m benchmarks.kernels --only whole``, Zen 5, CPU time of rounds with and without in turn): 4 % of a round
of W1, 33.5 ms for 34.9, 42 % of one of a hundred workers with a small network, 12 ms for 21, and 15 % of one of GradMA,
60 ms for 71.
"""

from collections.abc import Callable
from ctypes import Array, addressof, c_int64
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_platform import qp
from fl_platform.kernels.addresses import integers
from fl_platform.kernels.perceptron import Perceptron
from fl_platform.kernels.worker_projection import FOUND, as_solution
from fl_platform.models.flat import Stack, Vector
from fl_platform.qp.enumeration import ANCHORS
from fl_platform.qp.projection import Segments, check_segments


class Source:
    """All samples of a data set as compiled code gathers batches of them: bytes with factors and terms, or numbers."""

    def __init__(self, features: Tensor, labels: Tensor, scale: Tensor | None, shift: Tensor | None) -> None:
        self._held = tuple(part if part is None else part.contiguous() for part in (features, labels, scale, shift))
        channels = 1 if scale is None else scale.numel()
        pixels = features[0].numel() // channels
        first, classes, factors, terms = (0 if part is None else part.data_ptr() for part in self._held)
        self.table = integers([first, classes, channels, pixels, factors, terms])
        self.inputs = channels * pixels

    @staticmethod
    def of(features: Tensor, labels: Tensor, scale: Tensor | None, shift: Tensor | None) -> "Source | None":
        """The samples; None for others than bytes with factors and terms, and float32 numbers without."""
        dtype = torch.float32 if scale is None else torch.uint8
        if features.dtype != dtype or features.dim() < 2 or labels.dtype != torch.int64 or not len(features):
            return None
        if scale is not None and scale.numel() not in (1, features.shape[1]):
            return None
        return Source(features, labels, scale, shift)


@dataclass(frozen=True)
class Batches:
    """Which samples the batches of workers have."""

    indices: NDArray[np.int64]  # (steps, workers, samples)
    counts: NDArray[np.int64]  # (steps, workers): how many of them a batch has
    num_steps: NDArray[np.int64]  # of each worker

    def table(self, source: Source, losses: int, places: tuple[int, int, int]) -> Array[c_int64]:
        """As compiled code takes them."""
        indices, counts = self.indices, self.counts
        first = (addressof(source.table), indices.ctypes.data, counts.ctypes.data)
        strides = (indices.strides[0] // 8, counts.strides[0] // 8, indices.strides[1] // 8, counts.strides[1] // 8)
        return integers([*first, *strides, len(self.num_steps), self.num_steps.ctypes.data, losses, *places])


class WholeWorkers:
    """Workers one after another; their batches, and models and gradients between their first and last, live here."""

    def __init__(self, perceptron: Perceptron, source: Source) -> None:
        self._perceptron, self._source = perceptron, source
        self._samples, self._labels, self._batch = torch.empty(0), torch.empty(0, dtype=torch.int64), (c_int64 * 3)()
        self._models = self._gradients = torch.empty(0, perceptron.dim)
        self._columns = (c_int64 * (2 + ANCHORS))()
        self.ticks = (c_int64 * 2)()
        """What projections have taken since this was made, and all steps of their workers, by the processor's clock."""

    @staticmethod
    def of(perceptron: Perceptron | None, source: Source | None) -> "WholeWorkers | None":
        """For samples that the network can take; None without them, and for those of another length."""
        if perceptron is None or source is None or source.inputs != perceptron.chain.inputs:
            return None
        return WholeWorkers(perceptron, source)

    @staticmethod
    def compile(are_projected: bool) -> Callable[..., None]:
        """The compiled function; ask for it ahead, so that the first round does not compile."""
        from fl_platform.kernels import machine_code

        return machine_code.function("compiled_worker", "train_projected_workers" if are_projected else "train_workers")

    def train(self, batches: Batches, start: Vector, buffers: Stack, delta: Stack, rate: float) -> Tensor:
        """Take the workers' steps from ``start``, and write a row of ``delta`` for each, the way back.

        Rows of running statistics are written in place. Returns (workers, steps) losses.
        """
        start, losses = self._perceptron.as_params(start), self._losses(batches, 0)
        if not len(self._models):
            self._models = torch.empty(1, self._perceptron.dim)
        tables = self._tables(batches, start, buffers, delta, self._models.expand(len(delta), -1), losses)
        self.compile(are_projected=False)(*map(addressof, tables), losses.data_ptr(), rate)
        return losses

    def train_projected(
        self,
        batches: Batches,
        start: Vector,
        buffers: Stack,
        delta: Stack,
        rate: float,
        *,
        before: Stack | None,
        last: Stack | None,
        segments: Segments | None,
        margin: float,
    ) -> tuple[Tensor, qp.Solution]:
        """The same along projected gradients: ``before`` are rows of x_{-1}, without which the first step is plain.

        The last models are written to ``last`` as well. Returns what each projection found in each segment, too.
        """
        kernel, dim = self._perceptron, self._perceptron.dim
        start, cut = kernel.as_params(start), check_segments(segments, dim)
        if not len(self._gradients):
            self._models, self._gradients = torch.empty(3 if last is not None else 4, dim), torch.empty(3, dim)
        last = self._models[3].expand(len(delta), -1) if last is None else last
        losses, edges = self._losses(batches, 1), integers([0, *(stop for _, stop in cut)])
        tables = self._tables(batches, start, buffers, delta, last, losses)
        places = (self._models.data_ptr(), self._gradients.data_ptr(), *kernel.rows_of(before, 0))
        descent = integers([*places, addressof(edges), len(cut), addressof(self._columns), addressof(self.ticks)])
        projections = int(batches.num_steps.sum()) - (len(delta) if before is None else 0)
        found = torch.empty(projections, len(cut), FOUND, dtype=torch.float64)
        numbers = (losses.data_ptr(), found.data_ptr(), margin, rate)
        self.compile(are_projected=True)(*map(addressof, (*tables, descent)), *numbers)
        return losses[:-1], qp.Solution(**as_solution(found, ANCHORS))

    @staticmethod
    def _losses(batches: Batches, more: int) -> Tensor:
        return torch.empty(len(batches.num_steps) + more, len(batches.indices))

    def _tables(
        self, batches: Batches, start: Vector, buffers: Stack, delta: Stack, last: Stack, losses: Tensor
    ) -> tuple[Array[c_int64], ...]:
        kernel, room = self._perceptron, batches.indices.shape[2]
        if len(self._labels) < room:
            self._samples, self._labels = torch.empty(room * kernel.chain.inputs), torch.empty(room, dtype=torch.int64)
        places = (self._samples.data_ptr(), self._labels.data_ptr(), addressof(self._batch))
        chain, work = kernel.chain, kernel.working_memory(room)
        network = integers([*kernel.tables, kernel.dim, work, room, chain.places, chain.widest])
        rows = [kernel.rows_of(stack, kind) for stack, kind in ((buffers, 1), (delta, 0), (last, 0))]
        addresses, lengths = zip(*rows, strict=True)
        vectors = integers([start.data_ptr(), *addresses, *lengths])
        return network, batches.table(self._source, losses.shape[1], places), vectors
