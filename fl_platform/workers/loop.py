"""The reference engine: one worker after another, PyTorch's own layers, no padding."""

import torch
from torch import Tensor

from fl_platform.flat import Stack, Vector
from fl_platform.models.layers import Pass
from fl_platform.models.network import Output, Weights
from fl_platform.workers.stacked import StackedObjective
from fl_platform.workers.training import Batch, Job, LocalTraining, Objective, part_of_batch, part_of_job


class SingleObjective(StackedObjective):
    """A stack of one worker, run without a stack dimension and without padding."""

    def _padding(self) -> tuple[None, None]:
        return None, None

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
        weights = [weight.view(shape) for weight, shape in zip(weights, self._network.parameters.shapes, strict=True)]
        forward_pass = Pass(train, None, keys[0], updates_statistics)
        output = self._network.single(weights, buffers.view(-1), x[0], forward_pass, first)
        features = None if output.features is None else output.features.unsqueeze(0)
        return Output(output.logits.unsqueeze(0), features, [a.unsqueeze(0) for a in output.activations])


class LoopObjective(Objective):
    """Each worker's gradient in turn, on a batch of its own length; a worker without samples has gradient zero."""

    def __init__(self, training: LocalTraining, job: Job, batch: Batch) -> None:
        self._job = job
        self._workers = [
            SingleObjective(training, part_of_job(job, slice(s, s + 1)), part_of_batch(batch, s)) if length else None
            for s, length in enumerate(batch.lengths)
        ]

    def gradient(
        self, params: Stack | Vector, buffers: Stack | Vector, updates_statistics: bool, out: Stack | None = None
    ) -> tuple[Stack, Tensor]:
        gradients = self._job.global_params.new_empty(len(self._workers), params.shape[-1]) if out is None else out
        losses = torch.zeros_like(gradients[:, 0])
        for s, worker in enumerate(self._workers):
            own = slice(s, s + 1)
            if worker is None:
                gradients[own] = 0
                continue
            _, losses[own] = worker.gradient(
                params[own] if params.dim() == 2 else params,
                buffers[own] if buffers.dim() == 2 else buffers,
                updates_statistics,
                out=gradients[own],
            )
        self.passes += 1
        return gradients, losses
