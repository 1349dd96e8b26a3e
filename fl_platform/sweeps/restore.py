"""Run directories from an archive, so that sweeps go on from it on another machine."""

from pathlib import Path

from fl_platform.runs import archive, metrics
from fl_platform.runs.directory import RunDirectory, json_text, rounds_file
from fl_platform.runs.record import RunRecord, merge
from fl_platform.runs.writing import write_atomically


def restore(source: Path, output: Path) -> tuple[int, int]:
    """Write the directory of every ended run that ``output`` lacks; returns (written, in the archive).

    A result that is there stays, with its rounds; a configuration that is missing beside it is written. Checkpoints
    are not in an archive: a run that had not ended starts again. Raises UserError for a file that is no archive.
    """
    ended = [record for record in merge(archive.read(source)) if record.status and record.status.has_ended]
    written = [record for record in ended if _write(record, RunDirectory(output, record.run_id))]
    return len(written), len(ended)


def _write(record: RunRecord, files: RunDirectory) -> bool:
    """Write what is missing of a run; returns whether anything was."""
    if files.result() is not None:
        if files.config_file.exists():
            return False
        files.write_description(record)
        return True
    attempt = files.start_attempt()
    rows = ({name: value for name, value in row.items() if value is not None} for row in record.history.to_pylist())
    write_atomically(rounds_file(attempt), "".join(f"{json_text(row)}\n" for row in rows))
    files.write_description(record)
    summary = {name: value for name, value in record.summary.items() if not name.startswith("_")}
    files.complete(attempt, {**summary, "run": record.run_id, metrics.STATUS: record.status})
    return True
