"""Where a run's files lie: ``<output.dir>/<run id>/`` with attempts, their checkpoints, and the result.

A finished configuration run again starts a new attempt; the old result stays until the new one is complete.
"""

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from fl_platform.runs import metrics
from fl_platform.federation.checkpoints import newest_valid
from fl_platform.errors import UserError, cannot_write
from fl_platform.runs.writing import write_atomically


class RunDirectory:
    """The files of one run id."""

    def __init__(self, output: Path, run_id: str) -> None:
        self.output, self.run_id = output, run_id
        self.path = output / run_id
        self.attempts = self.path / "attempts"
        self.result_file = self.path / "result.json"

    def start_attempt(self) -> Path:
        """A fresh, numbered directory."""
        self.attempts.mkdir(parents=True, exist_ok=True)
        number = max(self._numbers(), default=0)
        while True:
            number += 1
            try:
                (self.attempts / f"{number:04d}").mkdir()
            except FileExistsError:  # another process started one at the same moment
                continue
            return self.attempts / f"{number:04d}"

    def newest_checkpoint(self) -> Path | None:
        """The newest valid checkpoint of the newest attempt that has one."""
        for number in sorted(self._numbers(), reverse=True):
            if found := newest_valid(self.attempts / f"{number:04d}" / "checkpoints"):
                return found
        return None

    def write_config(self, config: dict[str, Any]) -> None:
        write_atomically(self.path / "config.yaml", yaml.safe_dump(config, sort_keys=False))

    def complete(self, attempt: Path, result: dict[str, Any]) -> None:
        """Let go of the attempts a result supersedes, then publish it: readers take the oldest attempt for its own."""
        for number in self._numbers():
            if number < int(attempt.name):
                shutil.rmtree(self.attempts / f"{number:04d}", ignore_errors=True)
        write_atomically(self.result_file, json_text(result, indent=1) + "\n")

    def result(self) -> dict[str, Any] | None:
        try:
            loaded = json.loads(self.result_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError, UnicodeDecodeError):
            return None
        return loaded if isinstance(loaded, dict) and metrics.STATUS in loaded else None

    def _numbers(self) -> list[int]:
        return [int(path.name) for path in self.attempts.glob("[0-9]*") if path.name.isdigit()]


def json_text(values: Any, indent: int | None = None) -> str:
    """JSON that every reader takes: a figure that is not finite is null."""

    def finite(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: finite(item) for name, item in value.items()}
        if isinstance(value, list):
            return [finite(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(finite(values), indent=indent, allow_nan=False)


def check_writable(directory: Path, source: str) -> None:
    """Make a directory; ``source`` is the key or option that names it in messages."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(source, error) from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UserError(f"{source} cannot be written: permission denied in {directory}")
