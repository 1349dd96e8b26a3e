"""The reference engine: one worker after another, PyTorch's own layers, no padding. On a CPU also the fast one."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fl_platform.engines.stacked import StackedObjective
from fl_platform.engines.training import LocalTraining
from fl_platform.engines.work import LoadedPlan, LocalWork
from fl_platform.kernels.perceptron import Perceptron
from fl_platform.models.flat import Stack, Vector
from fl_platform.models.layers import Pass
from fl_platform.models.network import Output, Weights

GATHERED = 64
"""Steps whose batches are gathered at once: many enough to be cheap, few enough for epochs of a large worker."""

ROWS_TOGETHER = 32
"""Batches of at least so many samples go through a perceptron together: products of fewer rows (below 16 here) are
other code of the BLAS, which rounds differently when it has more."""
FLOATS_TOGETHER = 1 << 21
"""Gradients that are kept for later steps: 8 MB, which caches hold."""


class SingleObjective(StackedObjective):
    """A stack of one worker, run without a stack dimension and without padding; batches are gathered in advance."""

    def __init__(self, training: LocalTraining, work: LocalWork, plan: LoadedPlan) -> None:
        super().__init__(training, work, plan)
        self._first = 0
        self._gathered: tuple[Tensor, Tensor]  # (steps, 1, B, ...) and (steps, 1, B)
        self._batches: list[tuple[Tensor, Tensor]] = []  # of the steps from ``_first`` on
        self._at_global: dict[int, Stack] = {}  # gradients on the batches of steps, at x_t
        self._at_previous: dict[int, Stack] = {}  # and at the model of the step before

    def _gather(self, first: int) -> None:
        """Fetch the batches of the next steps, from number ``first`` on."""
        samples, plan = self._training.samples, self._plan
        steps = slice(first, first + GATHERED)
        indices = plan.indices[steps, 0, : max(plan.widths[steps])]
        x = samples.batch(indices, plan.keys[steps, 0] if samples.are_augmented else None)
        is_of_images = x.dim() == 5
        if is_of_images and x.device.type == "cpu":  # channels last: convolutions and pooling take two thirds or less
            x = x.flatten(0, 1).contiguous(memory_format=torch.channels_last).view(len(indices), 1, *x.shape[1:])
        else:
            x = x.unsqueeze(1)
        self._first = first
        self._gathered = x, samples.labels(indices).unsqueeze(1)
        self._batches = list(zip(*(tensor.unbind() for tensor in self._gathered), strict=True))

    def load(self, step: int) -> None:
        self._step, self._training_passes, self._global_logits = step, 0, None
        self._x, self._labels = self._batch(step)

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        if not 0 <= step - self._first < len(self._batches):
            self._gather(step)
        x, labels = self._batches[step - self._first]
        width = self._plan.widths[step]
        is_whole = width == labels.shape[1]
        return (x, labels) if is_whole else (x[:, :width], labels[:, :width])

    def gradient(
        self, params: Stack | Vector, buffers: Stack | Vector, updates_statistics: bool
    ) -> tuple[Stack, Tensor]:
        perceptron = self._training.perceptron
        if perceptron is None:
            return super().gradient(params, buffers, updates_statistics)
        self._count(slice(self._step, self._step + 1))
        looks_ahead = updates_statistics and self._step > 0 and self._training.algorithm.uses_previous_gradient
        statistics = buffers.view(-1) if updates_statistics else None
        found, loss = self._together(perceptron, params, statistics, 2 if looks_ahead else 1)
        if looks_ahead:
            self._at_previous = {step: known for step, known in self._at_previous.items() if step == self._step}
            if len(found) > 1:
                self._at_previous[self._step + 1] = found[1:]
        return found[:1], loss.view(1)

    def gradient_at_global(self, params: Vector) -> Stack:
        perceptron = self._training.perceptron
        if perceptron is None:
            return super().gradient_at_global(params)
        if self._step not in self._at_global:
            found, _ = self._together(perceptron, params, None, FLOATS_TOGETHER // params.numel())
            self._at_global = dict(enumerate(found.unsqueeze(1).unbind(), start=self._step))
        self._count(slice(self._step, self._step + 1))
        return self._at_global[self._step]

    def gradient_at_previous(self, params: Stack) -> Stack:
        found = self._at_previous.get(self._step)
        if found is None:
            return super().gradient_at_previous(params)
        self._count(slice(self._step, self._step + 1))
        return found

    def _together(
        self, perceptron: Perceptron, params: Stack | Vector, statistics: Vector | None, most: int
    ) -> tuple[Stack, Tensor]:
        """Gradients on the current batch and on up to ``most - 1`` that follow, at one point, and the current loss."""
        loaded, widths = [(self._x, self._labels)], self._plan.widths
        if widths[self._step] >= ROWS_TOGETHER:
            last = min(self._step + most, self._first + len(self._batches))
            for step in range(self._step + 1, last):
                if widths[step] < ROWS_TOGETHER:
                    break
                loaded.append(self._batch(step))
        into = self._training.empty("gradient", len(loaded), self._work)
        counts = [labels.shape[1] for _, labels in loaded]
        x, labels = self._joined(loaded)
        return into, perceptron.gradients(params.view(-1), statistics, x, labels, counts, into)

    def _joined(self, loaded: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The samples and labels of batches that follow each other, without copies where none is padded."""
        if len(loaded) == 1:
            return self._x[0], self._labels[0]
        x, labels = self._gathered
        steps = slice(self._step - self._first, self._step - self._first + len(loaded))
        if all(own.shape[1] == labels.shape[2] for _, own in loaded):
            return x[steps].flatten(0, 2), labels[steps].flatten()
        return torch.cat([x[0] for x, _ in loaded]), torch.cat([labels[0] for _, labels in loaded])

    def descend(self, params: Stack, buffers: Stack, rate: float) -> Tensor | None:
        perceptron = self._training.perceptron
        if perceptron is None:
            return None
        num_steps = len(self._plan.widths)
        scratch = self._training.empty("gradient", 1, self._work).view(-1)
        losses = []
        for first in range(0, num_steps, GATHERED):
            loaded = [self._batch(step) for step in range(first, min(first + GATHERED, num_steps))]
            batches, labels = [x[0] for x, _ in loaded], [y[0] for _, y in loaded]
            losses.append(perceptron.descend(params.view(-1), buffers.view(-1), batches, labels, rate, scratch=scratch))
        self._count(slice(num_steps))
        return torch.cat(losses).unsqueeze(1)

    def own(self, params: Stack | Vector) -> Vector:
        return params.view(-1)

    def forward(
        self,
        weights: Weights,
        buffers: Stack | Vector,
        x: Tensor,
        keys: Tensor,
        *,
        train: bool,
        updates_statistics: bool = False,
        first: int = 0,
    ) -> Output:
        forward_pass = Pass(train, None, keys[0], updates_statistics)
        output = self._network.single(weights, buffers.view(-1), x.flatten(0, 1), forward_pass, first)
        features = None if output.features is None else output.features.unsqueeze(0)
        return Output(output.logits.unsqueeze(0), features, StacksOfOne(output.activations))


class StacksOfOne(Sequence[Tensor]):
    """Tensors with a stack dimension in front, added when one is asked for: most algorithms never do."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, index: Any) -> Any:
        return self._tensors[index].unsqueeze(0)
