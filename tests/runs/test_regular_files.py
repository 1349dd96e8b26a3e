"""Pipes and devices in place of files: nothing waits for them or reads them without end."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.cli.why import last_lines
from fl_platform.config.partition_file import read_split
from fl_platform.config.regular_files import read_regular, refuse_pipe
from fl_platform.dashboard.views import log_tail
from fl_platform.errors import UserError
from fl_platform.runs import archive, wandb_logs
from fl_platform.runs.reader import read_directory
from fl_platform.sweeps.definition import saved_arguments
from fl_platform.sweeps.trials import last_line
from tests.dashboard.made_runs import write_run

FILES = ("result.json", "config.yaml", "run.json", "attempts/0001/rounds.jsonl", "attempts/0001/process.json")


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    """A read that waits, or that would fill the memory, ends after five seconds."""

    def ended(number: int, frame: object) -> None:
        raise AssertionError("a read did not end")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put(path: Path, kind: str) -> Path:
    """A pipe, an endless device or a folder under a name."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": os.mkdir}[kind](path)
    return path


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize("file", FILES)
def test_a_run_with_such_a_file_is_read_without_it(file: str, kind: str, tmp_path: Path) -> None:
    run = tmp_path / "r1"
    write_run(tmp_path, "r1")
    put(run / file, kind)
    assert read_directory(run).run_id == "r1"
    assert main(["why", "r1", "--dir", str(tmp_path)]) == 0


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_no_reader_takes_such_a_file(kind: str, tmp_path: Path) -> None:
    path = put(tmp_path / "x.json", kind)
    for refusing in (archive.read, wandb_logs.read, saved_arguments):
        with pytest.raises(UserError):
            refusing(path)
    with pytest.raises(UserError, match="not a regular file"):
        read_split(str(path))
    assert log_tail(path) is None
    assert last_line(path) == ""
    with pytest.raises(OSError, match="not a regular file"):
        last_lines(path, 3)


def test_a_pipe_as_configuration_is_refused_unless_a_shell_made_it(tmp_path: Path, capsys) -> None:
    pipe = put(tmp_path / "c.yaml", "pipe")
    for command in (["run", "--config", str(pipe)], ["run", f"chosen={pipe}"], ["sweep", "check", str(pipe)]):
        assert main(command) == 2
        assert "not a regular file" in capsys.readouterr().err
    reading, writing = os.pipe()
    refuse_pipe(Path(f"/dev/fd/{reading}"))
    os.close(reading)
    os.close(writing)


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    path.write_bytes(b"")
    os.truncate(path, 1 << 40)  # sparse: a terabyte that takes no space
    with pytest.raises(OSError, match="more than 1000 bytes"):
        read_regular(path, 1000)
