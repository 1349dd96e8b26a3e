"""What a command does as a process: signals, the encoding of its output, and errors of code it was given."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.config.registry import ALGORITHMS, DATASETS

PLUGIN = '''
from dataclasses import dataclass, field

import numpy as np

from fl_platform import Algorithm, Dataset


class Broken(Dataset, name="broken_files"):
    """Cannot be loaded."""

    num_classes = 2
    shape = (3,)
    features = "numbers"
    mean = (0.0,)
    std = (1.0,)

    def load(self, folder):
        raise KeyError("no such table")


@dataclass(eq=False)
class Tabled(Algorithm, name="tabled"):
    """Has an array where an option belongs."""

    table: np.ndarray = field(default_factory=lambda: np.zeros(3))
'''


def start(*args: str, folder: Path, **env: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fl_platform", *args]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, **pipes)


STARTING = """
import sys, time
from fl_platform import cli

def dispatch(args):
    print("up", flush=True)
    time.sleep(60)

cli.dispatch = dispatch
sys.exit(cli.main())
"""


def test_sigterm_while_a_command_starts_is_an_interruption(tmp_path):
    """Before training begins, where it finishes a round first, SIGTERM ends a command as Ctrl-C does."""
    (tmp_path / "starting.py").write_text(STARTING)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    starting = subprocess.Popen([sys.executable, tmp_path / "starting.py"], **pipes)
    assert starting.stdout is not None
    assert starting.stdout.readline() == b"up\n"
    starting.send_signal(signal.SIGTERM)
    _, said = starting.communicate(timeout=60)
    assert (starting.returncode, said) == (130, b"fl_platform: interrupted\n")


def test_output_in_ascii_has_question_marks_and_no_traceback(tmp_path):
    runs = str(Path(__file__).parents[1] / "golden" / "format2" / "runs.parquet")
    args = ("report", "--source", runs, "--rows", "algorithm.name", "--columns", "data.name")
    process = start(*args, folder=tmp_path, PYTHONIOENCODING="ascii")
    out, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")
    assert "? algorithm.name ? data.name=digits ?" in out.decode("ascii")


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    """The argument that imports the module above; it and its names are forgotten afterwards."""
    (tmp_path / "own_code.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "plugins=[own_code]"
    sys.modules.pop("own_code", None)
    DATASETS._entries.pop("broken_files", None)
    ALGORITHMS._entries.pop("tabled", None)


def test_a_data_set_that_fails_outside_a_run_is_named(own_code, capsys):
    assert main(["data", "partition", own_code, "data.name=broken_files", "num_workers=20"]) == 1
    said = capsys.readouterr().err
    assert "your code failed in load" in said.splitlines()[-1]
    assert "fl_platform/" not in said.rpartition("\n  File")[0]


def test_an_array_as_a_field_of_a_method_is_refused(own_code, capsys):
    assert main(["config", own_code, "algorithm.name=tabled"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("fl_platform: algorithm.table of algorithm.name=tabled is of type ndarray; ")
    assert said.count("\n") == 1
