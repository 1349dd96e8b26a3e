"""Local training of a whole cohort: one worker after another, or in chunks that fit the device, over all ranks."""

from collections.abc import Mapping

from fl_platform.workers.ranks import Ranks
from fl_platform.workers.training import Job, LocalResult, LocalTraining, Records


def train_cohort(
    training: LocalTraining, job: Job, widths: Mapping[str, int], chunk: int | None, ranks: Ranks
) -> LocalResult:
    """Train every worker of the job, ``chunk`` at a time; ``widths`` are the lengths of what each keeps and sends."""
    result = LocalResult.for_job(job, widths, zeros=ranks.size > 1)
    share = ranks.share(len(job.workers))
    for start in range(share.start, share.stop, chunk or len(job.workers)):
        rows = slice(start, min(start + (chunk or len(job.workers)), share.stop))
        training.train(job.part(rows), result, rows)
    if ranks.size > 1:
        gather(result, ranks)
    return result


def gather(result: LocalResult, ranks: Ranks) -> None:
    """Every rank's rows on every rank: each row is zero on all ranks but one, and adding zeros changes no bit."""
    for stack in (result.delta, result.buffers, result.loss, *result.outcome.values()):
        ranks.sum(stack)
    records = Records()
    for found in ranks.collect(result.records):
        assert isinstance(found, Records)
        records.extend(found)
    result.records = records
