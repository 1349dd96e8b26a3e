"""The fast engine on accelerators: all workers of the cohort at once, batches padded to one length and masked.

Batched products and grouped convolutions through torch.vmap; nothing waits for the device.
"""

import torch
from torch import Tensor

from fl_platform.algorithms.base import LocalBatch
from fl_platform.algorithms.returned import check_losses
from fl_platform.engines.training import LocalTraining, Objective
from fl_platform.engines.work import LoadedPlan, LocalWork, part_of
from fl_platform.models.flat import Stack, Vector
from fl_platform.models.network import Output, Weights, allowing_tf32

PASS_STRIDE = 0x1000000000000001  # sets the passes of one step apart in both halves of their dropout keys


class StackedObjective(Objective):
    """Every worker's gradient from one backward pass: workers share no parameter."""

    _x: Tensor  # (S, B, ...)
    _labels: Tensor  # (S, B)
    _mask: Tensor | None = None  # (S, B), False for padding; None where there is none
    _row_weights: Tensor | None = None  # (S, B), of real rows in a mean
    _global_logits: Tensor | None = None  # (S, B, K) of the current batch, once an algorithm has asked for them
    _class_counts: Tensor | None = None  # (S, K) of the whole stack, likewise

    def __init__(self, training: LocalTraining, work: LocalWork, plan: LoadedPlan) -> None:
        self._training, self._work, self._network, self._plan = training, work, training.network, plan
        self._step = self._training_passes = 0
        self._rows, self._state = len(work.workers), work.state  # of the workers that take the current step

    @property
    def _keys(self) -> Tensor:
        return self._plan.keys[self._step, : self._rows]

    def load(self, step: int) -> None:
        rows, width = self._plan.active[step], self._plan.widths[step]
        if rows != self._rows:
            self._rows, self._state = rows, part_of(self._work.state, slice(rows))
        indices = self._plan.indices[step, :rows, :width]
        self._step, self._training_passes, self._global_logits = step, 0, None
        self._x = self._training.samples.batch(indices, self._keys)
        self._labels = self._training.samples.labels(indices)
        self._mask = self._plan.mask[step, :rows, :width] if self._plan.is_padded[step] else None
        self._row_weights = self._plan.row_weights(self._work.global_params.dtype)[step, :rows, :width]

    def _count(self, steps: slice) -> None:
        """Note a gradient of every worker that has a batch in these steps."""
        self._work.gradient_passes[:] += (self._plan.plan.counts[steps] > 0).sum(axis=0)

    def gradient(
        self, params: Stack | Vector, buffers: Stack | Vector, updates_statistics: bool
    ) -> tuple[Stack, Tensor]:
        found = self._compute(params, buffers, self._next_keys(), updates_statistics)
        self._count(slice(self._step, self._step + 1))
        return found

    def _compute(
        self, params: Stack | Vector, buffers: Stack | Vector, keys: Tensor, updates_statistics: bool
    ) -> tuple[Stack, Tensor]:
        size = len(self._labels)
        views = self._network.parameters.views(self.own(params.expand(size, -1)))
        gradients, losses = self._gradients(views, buffers, keys, updates_statistics)
        stack = self._training.empty("gradient", size, self._work)
        return torch.cat([gradient.reshape(size, -1) for gradient in gradients], dim=1, out=stack), losses

    def _gradients(
        self, weights: Weights, buffers: Stack | Vector, keys: Tensor, updates_statistics: bool
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """The gradient of each tensor of parameters on the current batch; (S,) losses."""
        leaves = [weight.detach().requires_grad_() for weight in weights]
        with allowing_tf32(self._network.allows_tf32):
            output = self.forward(leaves, buffers, self._x, keys, train=True, updates_statistics=updates_statistics)
            loss = self._training.algorithm.local_loss(self._view(output))
            check_losses(self._training.algorithm, loss, len(self._labels), buffers.device)
            return torch.autograd.grad(loss.sum(), leaves), loss.detach()

    def gradient_at(self, params: Stack | Vector) -> Stack:
        return self.gradient(params, self._work.global_buffers, updates_statistics=False)[0]

    def own(self, params: Stack | Vector) -> Stack | Vector:
        """Parameters as ``forward`` takes them; what is not stacked is shared by the workers."""
        return params

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
        return self._network.stacked(
            weights, buffers, x, self._mask, keys, train=train, updates_statistics=updates_statistics, first=first
        )

    def _next_keys(self) -> Tensor:
        """Dropout keys of the next training pass; the first pass of a step has the same ones in every algorithm."""
        number = self._training_passes
        self._training_passes += 1
        return self._keys + PASS_STRIDE * number if number else self._keys

    def _view(self, output: Output) -> LocalBatch:
        return LocalBatch(
            labels=self._labels,
            logits=output.logits,
            features=output.features,
            activations=output.activations,
            weights=self._row_weights,
            state=self._state,
            global_params=self._work.global_params,
            global_buffers=self._work.global_buffers,
            count_classes=self._count_classes,
            frozen_logits=self._frozen_logits,
            frozen_features=self._frozen_features,
            run_blocks=self._run_blocks,
        )

    def _frozen(self, params: Stack | Vector, buffers: Stack | Vector) -> Output:
        """The current batch through the network with other values, in evaluation mode and without gradient."""
        weights = self._network.parameters.views(self.own(params))
        with torch.no_grad():
            return self.forward(weights, buffers, self._x, self._keys, train=False)

    def _frozen_features(self, params: Stack | Vector, buffers: Stack | Vector) -> Tensor:
        features = self._frozen(params, buffers).features
        assert features is not None
        return features

    def _frozen_logits(self) -> Tensor:
        if self._global_logits is None:
            self._global_logits = self._frozen(self._work.global_params, self._work.global_buffers).logits
        return self._global_logits

    def _count_classes(self, num_classes: int) -> Tensor:
        """The training samples of each class, of the workers that take the current step."""
        if self._class_counts is None:
            self._class_counts = self._training.class_counts(self._work, num_classes)
        return self._class_counts[: self._rows]

    def _run_blocks(self, first: int, x: Tensor, params: Vector, train: bool) -> Tensor:
        weights = self._network.parameters.views(params)
        keys = self._next_keys()
        return self.forward(weights, self._work.global_buffers, x, keys, train=train, first=first).logits
