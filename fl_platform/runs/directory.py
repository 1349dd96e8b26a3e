"""Where a run's files lie, and how they are written: whole or not at all.

    <output.dir>/<run id>/config.yaml      the resolved configuration
                          run.json         name, group, tags, sweep, host, start, commit and package versions
                          result.json      the summary, once the run has finished or diverged
                          attempts/0001/   rounds.jsonl, resources.jsonl, process.json, checkpoints/

A finished configuration run again starts a new attempt; the old result stays until the new one is complete.
"""

import hashlib
import json
import math
import os
import re
import shutil
import sys
import zlib
from pathlib import Path
from typing import Any

import yaml

from fl_platform.config.regular_files import read_regular
from fl_platform.errors import UserError, cannot_write
from fl_platform.runs import formats, liveness, metrics
from fl_platform.runs.checkpoint_files import CHECKPOINTS, newest_valid
from fl_platform.runs.record import PROVENANCE, RunRecord
from fl_platform.runs.status import RunStatus
from fl_platform.runs.writing import write_atomically

ATTEMPTS = "attempts"
_ATTEMPT, _CHECKSUM = "attempt", "checksum"
"""Keys of `result.json` beside the summary: which attempt it is from, and the checksum of everything else."""
_CHECKSUMS = "checksums"
"""Key of `run.json`: file -> the checksum of the bytes that the platform wrote, of the configuration and the rounds."""
_FORMAT = "format"
"""Key of `run.json` for the version of the directory; directories of release 0.1.0 have no such file."""
_CONFIG, _RUN, _RESULT, _ROUNDS = "config.yaml", "run.json", "result.json", "rounds.jsonl"
"""Files of a run, and of an attempt the last."""
_DESCRIPTION = ("name", "group", "sweep", "tags", "entity", "project", "host", "started")
"""Fields of a record that are kept in `run.json`."""


class RunDirectory:
    """The files of one run id."""

    def __init__(self, output: Path, run_id: str) -> None:
        self.output, self.run_id = output, run_id
        self.path = output / run_id

    @property
    def attempts(self) -> Path:
        return self.path / ATTEMPTS

    @property
    def config_file(self) -> Path:
        return self.path / _CONFIG

    @property
    def description_file(self) -> Path:
        return self.path / _RUN

    @property
    def result_file(self) -> Path:
        return self.path / _RESULT

    def stamps(self) -> dict[str, tuple[int, int]]:
        """(time, size) of every file that says what became of the run, (0, 0) of one that is not there."""
        place = os.fspath(self.path)  # reports ask for the stamps of thousands of runs: text is faster than paths
        stamps = {name: stamp(os.path.join(place, name)) for name in (_CONFIG, _RUN, _RESULT)}
        attempts = [f"{number:04d}" for number in sorted(self._numbers())]
        return stamps | {name: stamp(os.path.join(place, ATTEMPTS, name, _ROUNDS)) for name in attempts}

    def start_attempt(self) -> Path:
        """Make a fresh, numbered directory and return it.

        Raises UserError while another process works on an attempt, and FormatError as ``check_format``.
        """
        self.check_format()
        self.attempts.mkdir(parents=True, exist_ok=True)
        for earlier in self.all_attempts():
            if liveness.is_alive(earlier):
                raise liveness.held_error(earlier)
        number = max(self._numbers(), default=0)
        while True:
            number += 1
            try:
                self._attempt(number).mkdir()
            except FileExistsError:  # another process started one at the same moment
                continue
            return self._attempt(number)

    def all_attempts(self) -> list[Path]:
        """The directories of the attempts, the newest last."""
        return [self._attempt(number) for number in sorted(self._numbers())]

    def newest_attempt(self) -> Path | None:
        """The attempt that was started last."""
        return next(reversed(self.all_attempts()), None)

    def counted_attempt(self) -> Path | None:
        """The attempt that counts: the one the result is from, without a result the newest."""
        rounds = self.counted_rounds(has_result=self.result() is not None)
        return rounds and rounds.parent

    def newest_checkpoint(self) -> Path | None:
        """The newest valid checkpoint of the newest attempt that has one; FormatError as ``check_format``."""
        self.check_format()
        for number in sorted(self._numbers(), reverse=True):
            if found := newest_valid(self._attempt(number) / CHECKPOINTS):
                return found
        return None

    def newest_rounds(self) -> Path | None:
        """`rounds.jsonl` of the newest attempt that has one: that of the process at work, if there is one."""
        return next(reversed(self._rounds()), None)

    def counted_rounds(self, *, has_result: bool) -> Path | None:
        """`rounds.jsonl` of the attempt that counts: the one the result is from, without a result the newest."""
        found = self._rounds()
        if not has_result:
            return found[-1] if found else None
        named = read_json(self.result_file).get(_ATTEMPT)  # results of earlier versions do not say: it is the oldest
        return next((path for path in found if path.parent.name == named), found[0] if found else None)

    def write_description(self, record: RunRecord) -> None:
        """Write `config.yaml` and `run.json`: all that is known of a run before its first round."""
        config = {key: value for key, value in record.config.items() if key != PROVENANCE}
        values = {name: getattr(record, name) for name in _DESCRIPTION}
        provenance = record.config.get(PROVENANCE, {})
        content = yaml.safe_dump(config, sort_keys=False).encode()
        write_atomically(self.config_file, content)
        sums = {self.config_file.name: checksum_of_bytes(content)}
        described = {_FORMAT: formats.DIRECTORY, **values, PROVENANCE: provenance, _CHECKSUMS: sums}
        write_atomically(self.description_file, json_text(described, indent=1) + "\n")

    def check_format(self) -> None:
        """Raise FormatError where a newer version wrote the directory."""
        formats.check_format(str(self.path), read_json(self.description_file).get(_FORMAT, 1), formats.DIRECTORY)

    def add_provenance(self, found: dict[str, Any]) -> None:
        """Add to `run.json` what is known only once a run is set up, such as its engine."""
        self._add(PROVENANCE, found)

    def checksums(self) -> dict[str, Any]:
        """What `run.json` notes of other files: name -> checksum; without the rounds until the run has ended."""
        found = read_json(self.description_file).get(_CHECKSUMS)
        return found if isinstance(found, dict) else {}

    def _add(self, group: str, values: dict[str, Any]) -> None:
        described = read_json(self.description_file)
        before = described.get(group)
        described[group] = {**(before if isinstance(before, dict) else {}), **values}
        write_atomically(self.description_file, json_text(described, indent=1) + "\n")

    def description(self) -> dict[str, Any]:
        """What `run.json` says: fields of a record, and under ``run`` the provenance; empty where there is none."""
        loaded = read_json(self.description_file)
        texts = [name for name in _DESCRIPTION if name not in ("tags", "started")]
        kept: dict[str, Any] = {name: loaded[name] for name in texts if isinstance(loaded.get(name), str)}
        if isinstance(loaded.get("tags"), list):
            kept["tags"] = tuple(map(str, loaded["tags"]))
        if isinstance(loaded.get("started"), int | float):
            kept["started"] = float(loaded["started"])
        if isinstance(loaded.get(PROVENANCE), dict):
            kept[PROVENANCE] = loaded[PROVENANCE]
        return kept

    def end_attempt(self, attempt: Path, summary: dict[str, Any]) -> None:
        """Keep how an attempt ended: a result where the run has ended, else a note beside its rounds."""
        status = RunStatus(summary[metrics.STATUS])
        if status.has_ended:
            self.complete(attempt, summary)
        else:
            liveness.record_end(attempt, status)

    def complete(self, attempt: Path, result: dict[str, Any]) -> None:
        """Remove the attempts a result supersedes, but for one that another process works on, then publish it."""
        for number in self._numbers():
            if number < int(attempt.name) and not liveness.is_alive(self._attempt(number)):
                shutil.rmtree(self._attempt(number), ignore_errors=True)
        rounds = rounds_file(attempt)
        if rounds.exists() and self.description_file.exists():
            self._add(_CHECKSUMS, {rounds.name: checksum_of_bytes(rounds.read_bytes())})
        values = json.loads(json_text({**result, _ATTEMPT: attempt.name}))
        write_atomically(self.result_file, json_text({**values, _CHECKSUM: checksum(values)}, indent=1) + "\n")

    def result(self) -> dict[str, Any] | None:
        """The summary of a run that has ended, or None; a damaged one is named on stderr and counts as none.

        Raises FormatError as ``check_format``.
        """
        self.check_format()
        summary, problem = self.checked_result()
        if problem:
            print(f"{problem}; the run goes on from its newest checkpoint", file=sys.stderr)
        return summary or None

    def checked_result(self) -> tuple[dict[str, Any], str]:
        """(summary, problem): the summary is empty where there is no result, and where ``problem`` says it is damaged.

        Results of earlier versions have no checksum and are taken if their values have the types of a summary.
        """
        if not self.result_file.exists():
            return {}, ""
        loaded = read_json(self.result_file)
        stated = loaded.pop(_CHECKSUM, None)
        is_sound = is_summary(loaded) if stated is None else stated == checksum(loaded)
        loaded.pop(_ATTEMPT, None)
        return (loaded, "") if is_sound else ({}, f"{self.result_file} is damaged")

    def _attempt(self, number: int) -> Path:
        return self.attempts / f"{number:04d}"

    def _rounds(self) -> list[Path]:
        """Every attempt's rounds, in the order of the attempts."""
        files = (rounds_file(self._attempt(number)) for number in sorted(self._numbers()))
        return [file for file in files if file.exists()]

    def _numbers(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self.attempts) if re.fullmatch("[0-9]{4,9}", name)]
        except OSError:
            return []


def checksum(values: dict[str, Any]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of some values, as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def checksum_of_bytes(content: bytes) -> str:
    """The CRC-32 of a file's content as eight hexadecimal digits."""
    return f"{zlib.crc32(content):08x}"


def is_summary(values: dict[str, Any]) -> bool:
    """Whether values could be the summary of a run: a status, and numbers where a summary has numbers."""
    numbers = (metrics.ROUNDS, metrics.TOP_ACCURACY, metrics.FINAL_ACCURACY, metrics.TOP_ACCURACY_ROUND)
    return RunStatus.parse(values.get(metrics.STATUS)) is not None and all(
        isinstance(values[name], int | float | None) for name in numbers if name in values
    )


def stamp(path: str | Path) -> tuple[int, int]:
    """When a file was written, in ns, and its size; (0, 0) where it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def rounds_file(attempt: Path) -> Path:
    """Where an attempt keeps a line of JSON per round."""
    return attempt / _ROUNDS


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a file; empty where the file is absent, damaged or something else."""
    try:
        loaded = check_plain(json.loads(read_regular(path)))
    except (OSError, ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def check_plain(values: Any) -> Any:
    """Return values; ValueError where JSON cannot hold them, as a date of YAML, or a text has half a character."""
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except TypeError as error:
        raise ValueError(str(error)) from None
    return values


def json_text(values: Any, indent: int | None = None) -> str:
    """JSON that every reader takes: a number that is not finite becomes null."""

    def finite(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: finite(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [finite(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(finite(values), indent=indent, allow_nan=False)


def check_writable(directory: Path, source: str) -> None:
    """Make a directory; UserError where it cannot be written, with the key or option ``source`` that names it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(source, error) from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UserError(f"{source} cannot be written: permission denied in {directory}")
