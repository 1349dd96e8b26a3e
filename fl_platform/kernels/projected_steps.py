"""Local steps along projected gradients, of a perceptron as machine code.

x - rate QP(g; [g(x_before), g(x_t), x - x_t]), as GradMA takes them on workers.
The plain twin is a step of ``LocalTraining`` with ``GradMA.local_direction``; both have the same bits. What it saves:
the drift is taken where it is multiplied and the step where the anchors are combined, so neither they nor the direction
are written, models and gradients stay in the same memory, and hooks are not called.

Gain (``python -m benchmarks.kernels``, W1, one thread, CPU time of rounds with and without in turn): 11 % of a round of
GradMA, 63 ms for 70 on Zen 5.
"""

from collections.abc import Iterable, Iterator, Sequence
from ctypes import addressof

import torch
from torch import Tensor

from fl_platform import qp
from fl_platform.kernels.addresses import integers
from fl_platform.kernels.perceptron import Batches, Perceptron
from fl_platform.kernels.worker_projection import FOUND, as_solution, compiled_step
from fl_platform.models.flat import Vector
from fl_platform.qp.enumeration import ANCHORS
from fl_platform.qp.projection import Segments, check_segments

Block = tuple[Tensor, Tensor, Sequence[int]]
"""Batches that come together, as ``Perceptron.load`` takes them."""


class ProjectedSteps:
    """Steps of one worker after another; the models between its first and its last, and gradients, live here."""

    def __init__(self, perceptron: Perceptron, segments: Segments | None, margin: float) -> None:
        self._perceptron, self._margin, width = perceptron, margin, perceptron.dim
        cut = check_segments(segments, width)
        self._edges = integers([0, *(stop for _, stop in cut)])
        self._cut = (width, addressof(self._edges), len(cut))
        self._models, gradients = torch.empty(3, width), torch.empty(3, width)
        self._gradient, self._slots = gradients[0], [vector.data_ptr() for vector in gradients]
        self._step = compiled_step()

    def descend(
        self,
        start: Vector,
        center: Vector,
        before: Vector | None,
        buffers: Vector,
        batches: Iterable[Block],
        num_steps: int,
        rate: float,
        into: Vector,
    ) -> tuple[Tensor, qp.Solution]:
        """Take a step on each of the batches, which come some at a time, and write the last model ``into`` a vector.

        ``center`` is x_t and ``before`` x_{-1}; without it the first step is plain. Running statistics are updated.
        Returns the losses, and what each projection found in each segment.
        """
        kernel = self._perceptron
        now, center, statistics = kernel.as_params(start), kernel.as_params(center), kernel.statistics(buffers)
        before = None if before is None else kernel.as_params(before)
        losses = torch.empty(num_steps + 1)  # the last one takes those of anchors
        elsewhere = losses.data_ptr() + 4 * num_steps
        found = torch.empty(num_steps - (before is None), self._cut[-1], FOUND, dtype=torch.float64)
        place, free, last = found.data_ptr(), list(self._models), now
        own, first, second = self._slots
        for step, (loaded, which) in enumerate(one_by_one(kernel, batches)):
            following = into if step == num_steps - 1 else free.pop()
            kernel.run(now.data_ptr(), statistics, loaded, which, own, losses.data_ptr() + 4 * step, 0.0)
            anchors, earlier = [], last if step > 1 else before if step == 0 else None
            if earlier is not None:
                kernel.run(earlier.data_ptr(), 0, loaded, which, first, elsewhere, 0.0)
                anchors.append(first)
            if step > 0:
                kernel.run(center.data_ptr(), 0, loaded, which, second, elsewhere, 0.0)
                anchors.append(second)
            elif before is not None:
                anchors.append(own)  # x is x_t
            if anchors:
                origin = center.data_ptr() if step else 0  # there is no drift yet
                self.step(own, anchors, now.data_ptr(), origin, rate, following.data_ptr(), place)
                place += 8 * FOUND * self._cut[-1]
            else:
                torch.sub(now, self._gradient, alpha=rate, out=following)
            if step > 1:
                free.append(last)
            last, now = now, following
        return losses[:num_steps], qp.Solution(**as_solution(found, ANCHORS))

    def step(
        self, gradient: int, anchors: list[int], at: int, origin: int, rate: float, following: int, found: int
    ) -> None:
        """One projection and the step along it; everything is given as an address, 0 where there is no origin."""
        columns = integers([gradient, *anchors, at])
        answer = (following, found, self._margin, rate)
        self._step(addressof(columns), len(anchors), origin, *self._cut, *answer)


def one_by_one(kernel: Perceptron, batches: Iterable[Block]) -> Iterator[tuple[Batches, range]]:
    """Each batch, as the ones that it comes with and its number among them."""
    for block in batches:
        loaded = kernel.load(*block)
        for number in range(len(loaded)):
            yield loaded, range(number, number + 1)
