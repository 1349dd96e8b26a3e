"""The reference engine: one worker after another, PyTorch's own layers, no padding."""

import numpy as np
import torch
from torch import Tensor

from fl_platform.data.streams import BatchPlan
from fl_platform.flat import Stack, Vector
from fl_platform.models.layers import Pass
from fl_platform.models.network import Output
from fl_platform.workers.training import Executor, Job, LocalResult, LocalTraining, Records


class SingleExecutor(Executor):
    """A stack of one worker, run without a stack dimension."""

    def forward(
        self,
        params: Stack | Vector,
        buffers: Stack | Vector,
        x: Tensor,
        mask: Tensor | None,
        keys: Tensor,
        *,
        train: bool,
        updates_statistics: bool = False,
        first: int = 0,
    ) -> Output:
        forward_pass = Pass(train, mask if mask is None else mask[0], keys[0], updates_statistics)
        output = self.network.single(params.view(-1), buffers.view(-1), x[0], forward_pass, first)
        features = None if output.features is None else output.features.unsqueeze(0)
        return Output(output.logits.unsqueeze(0), features, [a.unsqueeze(0) for a in output.activations])


def train_one_by_one(training: LocalTraining, job: Job) -> LocalResult:
    """Each worker of the job alone; batches of its own length."""
    return concatenate([training.train(part(job, slice(s, s + 1))) for s in range(len(job.workers))])


def part(job: Job, rows: slice) -> Job:
    """Some workers of a job, their batches cut to the longest among them."""
    counts = job.plan.counts[:, rows]
    indices = job.plan.indices[:, rows, : counts.max()]
    return Job(
        round=job.round,
        workers=job.workers[rows],
        plan=BatchPlan(np.ascontiguousarray(indices), np.ascontiguousarray(counts)),
        global_params=job.global_params,
        global_buffers=job.global_buffers,
        buffers=job.buffers[rows] if job.buffers.dim() == 2 else job.buffers,
        relative_sizes=job.relative_sizes[rows],
        state={name: stack[rows] for name, stack in job.state.items()},
    )


def concatenate(results: list[LocalResult]) -> LocalResult:
    records = Records()
    for result in results:
        records.extend(result.records)
    return LocalResult(
        params=torch.cat([r.params for r in results]),
        buffers=torch.cat([r.buffers for r in results]),
        loss=torch.cat([r.loss for r in results]),
        outcome={name: torch.cat([r.outcome[name] for r in results]) for name in results[0].outcome},
        records=records,
        gradient_passes=sum(r.gradient_passes for r in results),
    )
