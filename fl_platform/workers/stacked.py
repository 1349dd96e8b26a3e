"""The fast engine: all workers of the cohort at once, batches padded to one length and masked.

Batched products and grouped convolutions through torch.vmap; nothing waits for the device.
"""

import torch
from torch import Tensor

from fl_platform.algorithms.base import LocalBatch
from fl_platform.flat import Stack, Vector
from fl_platform.models.network import Output, Weights
from fl_platform.workers.training import Batch, Job, LocalTraining, Objective

PASS_STRIDE = 0x1000000000000001  # sets the passes of one step apart in both halves of their dropout keys


class StackedObjective(Objective):
    """Every worker's gradient from one backward pass: workers share no parameter."""

    def __init__(self, training: LocalTraining, job: Job, batch: Batch) -> None:
        self._algorithm, self._network, self._job, self._batch = training.algorithm, training.network, job, batch
        self._x = training.images.batch(batch.indices, batch.keys)
        self._labels = training.images.labels(batch.indices)
        self._training_passes = 0
        self._mask, self._weights = self._padding()

    def _padding(self) -> tuple[Tensor | None, Tensor | None]:
        """(S, B) mask of real rows and their weights in a mean; always given, since vmap's own BatchNorm keeps no
        running statistics."""
        counts = self._batch.counts[:, None]
        mask = torch.arange(self._labels.shape[1], device=counts.device) < counts
        return mask, mask.to(self._x.dtype) / counts.clamp(min=1)

    def gradient(
        self, params: Stack | Vector, buffers: Stack | Vector, updates_statistics: bool, out: Stack | None = None
    ) -> tuple[Stack, Tensor]:
        stack = params.expand(len(self._labels), -1)
        leaves = [view.detach().requires_grad_() for view in self._network.parameters.views(stack)]
        output = self.forward(leaves, buffers, self._x, self._next_keys(), train=True, updates_statistics=updates_statistics)
        loss = self._algorithm.local_loss(self._view(output))
        gradients = torch.autograd.grad(loss.sum(), leaves)
        self.passes += 1
        return torch.cat([gradient.flatten(1) for gradient in gradients], dim=1, out=out), loss.detach()

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
        return self._batch.keys + PASS_STRIDE * number if number else self._batch.keys

    def _view(self, output: Output) -> LocalBatch:
        return LocalBatch(
            labels=self._labels,
            logits=output.logits,
            features=output.features,
            activations=output.activations,
            weights=self._weights,
            state=self._job.state,
            global_params=self._job.global_params,
            global_buffers=self._job.global_buffers,
            frozen_features=self._frozen_features,
            resume_at=self._resume_at,
        )

    def _frozen_features(self, params: Stack | Vector, buffers: Stack | Vector) -> Tensor:
        weights = self._network.parameters.views(params)
        with torch.no_grad():
            features = self.forward(weights, buffers, self._x, self._batch.keys, train=False).features
        assert features is not None
        return features

    def _resume_at(self, block: int, activation: Tensor, params: Vector) -> Tensor:
        weights = self._network.parameters.views(params)
        return self.forward(weights, self._job.global_buffers, activation, self._next_keys(), train=True, first=block).logits
