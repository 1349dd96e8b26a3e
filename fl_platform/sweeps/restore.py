"""Results from an archive put back where runs leave them, so that sweeps go on from it on another machine."""

import json
from pathlib import Path

from fl_platform.runs import archive, metrics
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.frames import ENDED, status_of
from fl_platform.runs.writing import write_atomically


def restore(source: Path, output: Path) -> tuple[int, int]:
    """Write result and rounds of every ended run that ``output`` does not have; returns (written, in the archive).

    Checkpoints are not in an archive: a run that had not ended starts again.
    """
    ended = [log for log in archive.read(source) if status_of(log) in ENDED]
    written = 0
    for log in ended:
        files = RunDirectory(output, log.run_id)
        if files.result() is not None:
            continue
        attempt = files.start_attempt()
        rows = log.history.to_pylist()
        lines = [json.dumps({name: value for name, value in row.items() if value is not None}) for row in rows]
        write_atomically(attempt / "rounds.jsonl", "".join(f"{line}\n" for line in lines))
        scalars = {name: value for name, value in log.summary.items() if not name.startswith("_")}
        files.complete(attempt, {**scalars, "run": log.run_id, metrics.STATUS: status_of(log)})
        written += 1
    return written, len(ended)
