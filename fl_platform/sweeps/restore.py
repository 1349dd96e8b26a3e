"""Run directories from an archive, so that sweeps go on from it on another machine."""

import dataclasses
from pathlib import Path

from fl_platform.config.compose import from_given, parse_mapping
from fl_platform.config.resolve import resolve
from fl_platform.config.schema import Config
from fl_platform.errors import UserError
from fl_platform.runs import archive, metrics
from fl_platform.runs.directory import RunDirectory, json_text, rounds_file
from fl_platform.runs.record import PROVENANCE, RunRecord, merge
from fl_platform.runs.writing import write_atomically


def restore(source: Path, output: Path) -> tuple[int, int]:
    """Write the directory of every ended run that ``output`` lacks; returns (written, in the archive).

    A run is written under the id that its configuration has in this version. A result that is there stays, with its
    rounds; a configuration that is missing beside it is written. Checkpoints are not in an archive: a run that had not
    ended starts again. Raises UserError for a file that is no archive.
    """
    ended = [record for record in merge(archive.read(source)) if record.status and record.status.has_ended]
    current = map(with_current_id, ended)
    written = [record for record in current if _write(record, RunDirectory(output, record.run_id))]
    return len(written), len(ended)


def with_current_id(record: RunRecord) -> RunRecord:
    """The record under the id and group that ``run`` gives its configuration today.

    It stays as it is where the configuration names code, which an archive may not start, and where this version does
    not accept it.
    """
    known = {field.name for field in dataclasses.fields(Config)}
    known -= {"chosen", "point"}  # their values are in the configuration
    values = {name: value for name, value in record.config.items() if name in known}
    model = values.get("model")
    name = model.get("name") if isinstance(model, dict) else None
    if values.get("plugins") or not isinstance(name, str) or "." in name:
        return record
    try:
        spec = resolve(from_given(parse_mapping(values, record.source)))
    except UserError:
        return record
    if spec.run_id == record.run_id:
        return record
    provenance = {**record.config.get(PROVENANCE, {}), "id": spec.run_id, "group": spec.group_id}
    return dataclasses.replace(
        record, run_id=spec.run_id, name=spec.name, group=spec.group, config={**record.config, PROVENANCE: provenance}
    )


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
