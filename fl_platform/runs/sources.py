"""Finds runs below a path, and reads them from wherever they are: one record per run.

The readers of W&B logs and of archives are imported where there is one to read: directories alone do without.
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fl_platform.errors import UserError
from fl_platform.runs.directory import ATTEMPTS, RunDirectory
from fl_platform.runs.formats import LEDGER_FILE
from fl_platform.runs.parallel import read_directories
from fl_platform.runs.record import RunRecord, merge, own_id, readable

WANDB = "wandb:"
"""What the address of a project on a W&B server starts with."""
_OF_WANDB = {"files", "logs", "tmp"}  # folders of a W&B run, which hold no runs


@dataclass
class Found:
    """Places below a path."""

    runs: list[Path] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)
    sweeps: list[Path] = field(default_factory=list)

    def directories(self) -> dict[str, Path]:
        """Run id -> its directory, the newest first.

        Of two with the same id one with a result, then the newest counts. One without a configuration, as a run has in
        its first moment, is left out where there is a W&B log.
        """
        logs = self.logs_by_id()
        worth = {path: _worth(path) for path in self.runs if path.name not in logs or has_config(path)}
        counted = {path.name: path for path in sorted(worth, key=worth.__getitem__)}
        newest = sorted(counted.values(), key=lambda path: worth[path][1], reverse=True)
        return {path.name: path for path in newest}

    def logs_by_id(self) -> dict[str, list[Path]]:
        """The id in a W&B log's name -> such logs, the newest last."""
        logs: dict[str, list[Path]] = {}
        for path in sorted(self.logs):
            logs.setdefault(path.stem.removeprefix("run-"), []).append(path)
        return logs


def has_config(path: Path) -> bool:
    """Whether a run directory says what the run is; those that an earlier version restored do not."""
    return RunDirectory(path.parent, path.name).config_file.exists()


def _worth(path: Path) -> tuple[bool, int]:
    """(has a result, when its configuration was written)."""
    files = RunDirectory(path.parent, path.name)
    try:
        return files.result_file.exists(), files.config_file.stat().st_mtime_ns
    except OSError:
        return files.result_file.exists(), 0


def discover(root: Path) -> Found:
    """Run directories, W&B logs and sweep directories; nothing below runs and sweeps is looked into.

    A symbolic link to a run or a sweep elsewhere, or to a directory with such, is followed, one within ``root`` such as
    W&B's `latest-run` is not; neither are hidden directories.
    """
    found, home = Found(), root.resolve()
    for place, folders, files in os.walk(root):
        if ATTEMPTS in folders:
            found.runs.append(Path(place))
            folders.clear()
        elif LEDGER_FILE in files:
            found.sweeps.append(Path(place))
            folders.clear()
        else:
            logs = [Path(place, name) for name in files if name.endswith(".wandb")]
            found.logs += logs
            skipped = _OF_WANDB if logs else set()
            folders[:] = sorted(
                name for name in folders if name not in skipped and (not name.startswith(".") or name == ".wandb")
            )
            for name in folders:
                if os.path.islink(linked := os.path.join(place, name)):
                    _add_linked(found, Path(linked), home)
    return found


def _add_linked(found: Found, link: Path, home: Path, *, looks_inside: bool = True) -> None:
    """Add the run or sweep that a link leads to, else those one level below; nothing that ``home`` has or lies in."""
    with contextlib.suppress(OSError):  # it may not be read
        target = link.resolve()
        if target.is_relative_to(home) or home.is_relative_to(target):
            return
        if (target / ATTEMPTS).is_dir():
            found.runs.append(target)
        elif (target / LEDGER_FILE).is_file():
            found.sweeps.append(target)
        elif looks_inside:
            for inside in sorted(target.iterdir()):
                if not inside.name.startswith("."):
                    _add_linked(found, inside, home, looks_inside=False)


def read(sources: "Iterable[str | os.PathLike[str]]", cache_dir: Path | None = None) -> list[RunRecord]:
    """One record per run id, in the order of ids.

    A source is a directory with runs, a `.wandb` file, an archive, or `wandb:entity/project[/sweep]`. Below a
    directory, run directories are read first, then the W&B logs of runs without one. A run that has a directory with
    its configuration anywhere is taken from there alone. Raises UserError for a source that holds no run.
    """
    found, imported = Found(), list[RunRecord]()
    for source in sources:
        if isinstance(source, str) and source.startswith(WANDB):
            from fl_platform.runs import wandb_server

            imported += wandb_server.read_project(source.removeprefix(WANDB), cache_dir)
        elif Path(source).is_dir():
            here = discover(Path(source))
            if not here.runs and not here.logs:
                raise UserError(
                    f"source {source} holds no runs: neither run directories nor W&B logs (*.wandb); "
                    "give the output.dir of some runs or an archive"
                )
            found.runs += here.runs
            found.logs += here.logs
        else:
            imported += _read_file(Path(source), cache_dir)
    directories, logs = found.directories(), found.logs_by_id()
    known = {own_id(record) for record in imported}
    directories = {run_id: path for run_id, path in directories.items() if run_id not in known or has_config(path)}
    records = read_directories(
        {path: logs[run_id][-1] if run_id in logs else None for run_id, path in directories.items()}, cache_dir
    )
    alone = [path for wandb_id, paths in logs.items() if wandb_id not in directories for path in paths]
    if alone:
        from fl_platform.runs import wandb_logs

        imported += [wandb_logs.read_with_status(path, cache_dir) for path in alone]
    records += merge(record for record in imported if own_id(record) not in directories)
    return sorted(map(readable, records), key=lambda record: record.run_id)


def _read_file(path: Path, cache_dir: Path | None) -> list[RunRecord]:
    if not path.exists():
        raise UserError(f"source {path}: no such file or directory")
    if path.suffix == ".wandb":
        from fl_platform.runs import wandb_logs

        return [wandb_logs.read_with_status(path, cache_dir)]
    from fl_platform.runs import archive

    return archive.read(path)
