"""The reference engine: one worker after another, PyTorch's own layers, no padding. On a CPU also the fast one."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from fl_platform.data.device_samples import channels_last
from fl_platform.engines.stacked import StackedObjective
from fl_platform.engines.training import LocalTraining
from fl_platform.engines.work import LoadedPlan, LocalWork
from fl_platform.kernels import convolution, dropout, linear, pooling
from fl_platform.models.code import code_of
from fl_platform.models.flat import Stack, Vector
from fl_platform.models.layers import Pass
from fl_platform.models.network import Output, Weights

GATHERED = 64
"""Steps whose batches are gathered at once: many enough to be cheap, few enough for epochs of a large worker."""


class SingleObjective(StackedObjective):
    """A stack of one worker, run without a stack dimension and without padding; batches are gathered in advance."""

    takes_whole_workers = True

    def __init__(self, training: LocalTraining, work: LocalWork, plan: LoadedPlan) -> None:
        super().__init__(training, work, plan)
        self._perceptron = training.perceptron
        self._has_batch: list[bool] = (plan.plan.counts[:, 0] > 0).tolist()  # of each step
        self._first = 0
        self._batches: list[tuple[Tensor, Tensor]] = []  # of the steps from ``_first`` on

    def _block(self, first: int) -> tuple[Tensor, Tensor, list[int]]:
        """The batches of the next steps, from number ``first`` on, their labels and lengths."""
        samples, plan = self._training.samples, self._plan
        steps = slice(first, first + GATHERED)
        widths = plan.widths[steps]
        indices = plan.indices[steps, 0, : max(widths)]
        x = samples.batch(indices, plan.keys[steps, 0] if samples.are_augmented else None)
        return x, samples.labels(indices), widths

    def _gather(self, first: int) -> None:
        x, labels, _ = self._block(first)
        is_of_images = x.dim() == 5
        if is_of_images and x.device.type == "cpu":  # channels last: convolutions and pooling take two thirds or less
            x = x.flatten(0, 1).contiguous(memory_format=torch.channels_last).view(len(x), 1, *x.shape[1:])
        else:
            x = x.unsqueeze(1)
        self._first = first
        self._batches = list(zip(x.unbind(), labels.unsqueeze(1).unbind(), strict=True))

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

    def _count(self, steps: slice) -> None:
        self._work.gradient_passes[0] += sum(self._has_batch[steps])

    def gradient(
        self, params: Stack | Vector, buffers: Stack | Vector, updates_statistics: bool
    ) -> tuple[Stack, Tensor]:
        perceptron = self._perceptron
        if perceptron is None:
            return super().gradient(params, buffers, updates_statistics)
        self._count(slice(self._step, self._step + 1))
        statistics = buffers.view(-1) if updates_statistics else None
        gradient = self._training.empty("gradient", 1, self._work)
        loss = perceptron.gradient(params.view(-1), statistics, self._x[0], self._labels[0], into=gradient.view(-1))
        return gradient, loss.view(1)

    def descend(self, params: Stack, buffers: Stack, rate: float) -> Tensor | None:
        if self._perceptron is not None:
            blocks = self._blocks()
            losses = [self._perceptron.descend(params.view(-1), buffers.view(-1), *block, rate) for block in blocks]
        elif code_of(params) == "cpu":
            weights = self._network.parameters.views(params.view(-1))
            losses = [self._take_step(step, weights, buffers, rate) for step in range(len(self._plan.widths))]
        else:  # where one operation on the whole vector takes less time than one on each tensor
            return None
        self._count(slice(None))
        return torch.cat(losses).unsqueeze(1)

    def _take_step(self, step: int, weights: Weights, buffers: Stack, rate: float) -> Tensor:
        """A step along each tensor's own gradient, in place: (1,) its loss."""
        self.load(step)
        gradients, loss = self._gradients(weights, buffers, self._next_keys(), updates_statistics=True)
        torch._foreach_sub_(weights, gradients, alpha=rate)
        return loss

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor, list[int]]]:
        """The batches of all steps, some at a time."""
        return map(self._block, range(0, len(self._plan.widths), GATHERED))

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
        forward_pass = Pass(
            train,
            None,
            keys[0],
            updates_statistics,
            max_pool2d=pooling.max_pool2d,
            linear=linear.linear,
            dropout=dropout.dropout,
            maxima=convolution.maxima,
        )
        batch, statistics = x.flatten(0, 1), buffers.view(-1)
        if first == 0 and batch.dim() == 4 and batch.device.type == "cpu":
            batch = channels_last(batch)  # views lose the strides of one channel
        output = self._network.single(weights, statistics, batch, forward_pass, first)
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
