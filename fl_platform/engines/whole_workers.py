"""Workers that a kernel takes from x_t to their update, where nothing else happens on the way."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, ProjectedDescent, has_default
from fl_platform.engines.local_sgd import LocalSGD
from fl_platform.engines.records import Records
from fl_platform.engines.work import LocalResult, LocalWork
from fl_platform.kernels.whole_workers import Batches, WholeWorkers


class WholeTraining:
    """The kernel's workers of a method: FedAvg's, or those that take steps along projected gradients."""

    def __init__(self, kernel: WholeWorkers, algorithm: Algorithm, sgd: LocalSGD) -> None:
        self.kernel, self._algorithm, self._sgd = kernel, algorithm, sgd
        if self.is_plain:
            kernel.compile(are_projected=False)
        elif self.is_projected:
            kernel.compile(are_projected=True)

    @property
    def is_plain(self) -> bool:
        """Whether the workers are FedAvg's."""
        hooks = ("start_local", "local_loss", "local_direction", "finish_local")
        return self._sgd.is_plain and has_default(self._algorithm, *hooks)

    @property
    def is_projected(self) -> bool:
        """Whether the workers take steps along projected gradients as the kernel does."""
        return self._rule is not None

    @property
    def _rule(self) -> ProjectedDescent | None:
        is_plain = self._sgd.is_plain and has_default(self._algorithm, "start_local", "local_loss")
        return self._algorithm.projected_descent() if is_plain else None

    def suits(self, work: LocalWork, result: LocalResult) -> bool:
        """Tell whether the kernel does all that the workers of a round do."""
        if not work.plan.steps.all():
            return False
        if self.is_plain:
            return not result.outcome
        rule = self._rule
        return rule is not None and set(result.outcome) == {name for name in (rule.previous,) if name is not None}

    def train(self, work: LocalWork, result: LocalResult, rows: slice) -> Records:
        """Train workers that ``suits``, and write what they end with into ``rows`` of the result."""
        plan, records, rate = work.plan, Records(), work.local_lr
        steps = np.ascontiguousarray(plan.steps[rows], np.int64)
        batches = Batches(plan.indices[:, rows], plan.counts[:, rows], steps)
        buffers, delta = result.buffers[rows], result.delta[rows]
        buffers.copy_(work.buffers[rows] if work.buffers.dim() == 2 else work.buffers)
        has_batch = plan.counts[:, rows] > 0
        passes = has_batch.sum(axis=0)
        if self.is_plain:
            losses = self.kernel.train(batches, work.global_params, buffers, delta, rate)
        else:
            rule = self._rule
            assert rule is not None
            before = last = None
            if rule.previous is not None:
                before, last = work.state[rule.previous][rows], result.outcome[rule.previous][rows]
            losses, found = self.kernel.train_projected(
                *(batches, work.global_params, buffers, delta, rate),
                before=before,
                last=last,
                segments=rule.segments,
                margin=rule.margin,
            )
            if len(found.active):
                rule.record(records.record, found)
            of_previous = has_batch[2:].sum(axis=0)
            passes += has_batch[0 if before is not None else 1 :].sum(axis=0) + of_previous
        mean_losses(losses, steps.tolist(), result.loss[rows])
        work.gradient_passes[rows] += passes
        return records


def mean_losses(losses: Tensor, steps: Sequence[int], into: Tensor) -> None:
    """The means of each worker's losses (workers, steps) over as many as it took; of equally many at once."""
    start = 0
    for count, group in groupby(steps):
        stop = start + len(list(group))
        torch.mean(losses[start:stop, :count], 1, out=into[start:stop])
        start = stop
