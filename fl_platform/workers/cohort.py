"""Local training of a whole cohort: in chunks that fit the device, over all ranks."""

from collections.abc import Mapping

import torch

from fl_platform.workers.ranks import Ranks
from fl_platform.workers.training import Job, LocalResult, LocalTraining, Records, part_of_job


def train_cohort(training: LocalTraining, job: Job, widths: Mapping[str, int], chunk: int | None, ranks: Ranks) -> LocalResult:
    """Train every worker of the job; ``widths`` are the lengths of what each worker keeps and sends, by name."""
    count = len(job.workers)
    rows = ranks.share(count)
    chunk = chunk or count
    starts = range(rows.start, rows.stop, chunk)
    parts = [training.train(part_of_job(job, slice(start, min(start + chunk, rows.stop)))) for start in starts]
    if len(parts) == 1 and ranks.size == 1:
        return parts[0]
    return gather(parts or [nobody(job, widths)], rows, count, ranks)


def gather(parts: list[LocalResult], rows: slice, count: int, ranks: Ranks) -> LocalResult:
    """The parts of all ranks as one result, the same on every rank."""

    def whole(pieces: list[torch.Tensor]) -> torch.Tensor:
        return ranks.whole(torch.cat(pieces), rows, count)

    local = Records()
    for part in parts:
        local.extend(part.records)
    records = Records()
    for found in ranks.collect(local):
        assert isinstance(found, Records)
        records.extend(found)
    return LocalResult(
        params=whole([part.params for part in parts]),
        buffers=whole([part.buffers for part in parts]),
        loss=whole([part.loss for part in parts]),
        outcome={name: whole([part.outcome[name] for part in parts]) for name in parts[0].outcome},
        records=records,
        gradient_passes=sum(part.gradient_passes for part in parts),
    )


def nobody(job: Job, widths: Mapping[str, int]) -> LocalResult:
    """The result of a rank that has no worker this round."""
    empty = job.global_params.new_zeros
    return LocalResult(
        params=empty(0, job.global_params.numel()),
        buffers=empty(0, job.global_buffers.numel()),
        loss=empty(0),
        outcome={name: empty(0, width) for name, width in widths.items()},
        records=Records(),
        gradient_passes=0,
    )
