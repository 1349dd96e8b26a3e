"""Code that is not the platform's and fails in a round: named with its hook, line and round; the rest stays intact."""

import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.config.registry import ALGORITHMS, DATASETS
from fl_platform.federation import user_code
from fl_platform.runs.checkpoint_files import newest_valid
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.reader import read_directory
from fl_platform.runs.status import Ending, RunStatus
from fl_platform.sweeps.states import TrialState
from tests.sweeps.small_sweeps import launch_here, quick_sweep

PLUGIN = '''
from dataclasses import dataclass
import numpy as np
import torch
from fl_platform import Algorithm, UserError

class Odd(BaseException):
    pass

class Mute(Exception):
    def __str__(self):
        raise RuntimeError

class Helper:
    def __init__(self):
        self.n, self.seen = 0, torch.zeros(1)

@dataclass(eq=False)
class Failing(Algorithm, name="failing", label="Failing"):
    """Fails in its second round."""

    total = 0

    def begin_round(self, workers, round):
        self.is_due, self.seen, self.names = round == 2, torch.zeros(1), []
        self.counts, self.table, self.array, self.helper = [0], dict(a=1), np.zeros(2), Helper()
        {begin}

    def local_direction(self, step):
        if self.is_due:
            {local}
        return step.gradient

    def server_direction(self, updates):
        if self.is_due:
            {server}
        return updates.mean_delta
'''
KEYS = ["plugins=[failing_plugin]", "num_workers=4", "cohort_size=2", "num_rounds=3", "local_steps=1"]
KEYS += ["checkpoint.every=1", "data.dirichlet_omega=10", "tracking.mode=disabled", "trainer.enable_progress_bar=false"]

FAULTS = {
    "begin_round raises": ({"begin": "1 / (2 - round)"}, "begin_round", "ZeroDivisionError: division by zero"),
    "a worker hook raises": ({"local": "raise RuntimeError('no idea')"}, "local_direction", "RuntimeError: no idea"),
    "wrong shape": (
        {"local": "return step.gradient[0]"},
        "local_direction",
        "returned a tensor",
    ),
    "wrong type": (
        {"local": "return step.gradient.double()"},
        "local_direction",
        "torch.float64, on cpu; it must",
    ),
    "nothing": ({"local": "return None"}, "local_direction", "Failing.local_direction returned a NoneType"),
    "wrong device": ({"local": "return step.gradient.to('meta')"}, "local_direction", "on meta; it must return"),
    "self is set": ({"local": "self.total = 1"}, "local_direction", "(local_direction) wrote self.total; worker hooks"),
    "self is written in place": ({"local": "self.seen.add_(1)"}, "local_direction", "wrote self.seen; worker hooks"),
    "self grows": ({"local": "self.names.append(1)"}, "local_direction", "wrote self.names; worker hooks may not"),
    "an item of self": ({"local": "self.counts[0] += 1"}, "local_direction", "wrote self.counts[0]; worker hooks"),
    "a value of self": ({"local": "self.table['a'] += 1"}, "local_direction", "wrote self.table['a']; worker hooks"),
    "an array of self": ({"local": "self.array[0] += 1"}, "local_direction", "wrote self.array; worker hooks may"),
    "an object of self": ({"local": "self.helper.n += 1"}, "local_direction", "wrote self.helper.n; worker hooks"),
    "its tensor": ({"local": "self.helper.seen.add_(1)"}, "local_direction", "wrote self.helper.seen; worker hooks"),
    "its class": ({"local": "Failing.total += 1"}, "local_direction", "wrote Failing.total; worker hooks may not"),
    "x_t in place": ({"local": "step.global_params.zero_()"}, "local_direction", "wrote global_params; worker hooks"),
    "sparse": ({"local": "return step.gradient.to_sparse()"}, "local_direction", "layout torch.sparse_coo"),
    "a graph": ({"local": "return torch.nn.Parameter(step.gradient)"}, "local_direction", "gradients (detach it)"),
    "sys.exit(0)": ({"local": "raise SystemExit(0)"}, "local_direction", "SystemExit: 0"),
    "no Exception": ({"server": "raise Odd('end')"}, "server_direction", "Odd: end"),
    "no text": ({"server": "raise Mute"}, "server_direction", "Mute: (its text cannot be made)"),
    "StopIteration": ({"server": "next(iter([]))"}, "server_direction", "StoppedStep: StopIteration"),
    "another class": (
        {"server": "self.__class__ = Helper"},
        "server_direction",
        "TypeError: an algorithm cannot change its class, here from Failing to Helper",
    ),
    "recursion": ({"server": "self.server_direction(updates)"}, "server_direction", "RecursionError: maximum"),
    "UserError": ({"server": "raise UserError('no')"}, "server_direction", "UserError: no; what was"),
    "a missing file": ({"server": "open('/no/such')"}, "server_direction", "FileNotFoundError: [Errno 2]"),
    "a forbidden file": ({"server": "raise PermissionError(13, 'no')"}, "server_direction", "PermissionError: "),
    "a pipe": ({"server": "raise BrokenPipeError(32, 'gone')"}, "server_direction", "BrokenPipeError: "),
    "escapes": ({"server": "raise OSError('\\x1b[31m')"}, "server_direction", "OSError: \\x1b[31m"),
    "a long text": ({"server": "raise OSError('x' * 10**6)"}, "server_direction", "x; what was saved stays"),
    "server hook": (
        {"server": "return updates.delta"},
        "server_direction",
        "returned a tensor",
    ),
}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the module ``failing_plugin`` is to be written; it and its algorithm are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "failing_plugin.py"
    sys.modules.pop("failing_plugin", None)
    ALGORITHMS._entries.pop("failing", None)
    DATASETS._entries.pop("leaving", None)


def write(plugin: Path, **faults: str) -> None:
    plugin.write_text(PLUGIN.format(**{"begin": "pass", "local": "pass", "server": "pass", **faults}))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_hook_is_named_and_the_checkpoint_stays(fault: str, plugin: Path, tmp_path: Path, capsys) -> None:
    faults, hook, reason = FAULTS[fault]
    write(plugin, **faults)
    assert main(["run", *KEYS, "algorithm.name=failing", f"output.dir={tmp_path}"]) == 1
    error = capsys.readouterr().err
    assert f"fl_platform: round 2: your code failed in {hook} ({plugin}, line " in error
    assert reason in error.splitlines()[-1]
    assert "lightning" not in error
    assert "\x1b" not in error
    assert len(error) < 30_000
    [run] = tmp_path.glob("*/config.yaml")
    attempt = RunDirectory(tmp_path, run.parent.name).newest_attempt()
    assert attempt is not None
    assert newest_valid(attempt / "checkpoints") is not None
    record = read_directory(run.parent)
    assert record.status is RunStatus.CRASHED
    assert record.history.num_rows == 1
    assert record.ending is Ending.USER_CODE
    assert main(["why", run.parent.name, "--dir", str(tmp_path)]) == 0
    explained = capsys.readouterr().out
    assert f"run {run.parent.name} user code failed; 1 of 3 rounds on disk" in explained
    assert reason in explained.splitlines()[-1], "the traceback that the attempt keeps"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("forks", ["__import__('os').fork()", "__import__('os').fork() or exit(0)"])
def test_a_copy_of_the_process_that_a_hook_makes_ends(forks: str, plugin: Path, tmp_path: Path, capfd) -> None:
    write(plugin, server=forks)
    assert main(["run", *KEYS, "algorithm.name=failing", f"output.dir={tmp_path}"]) == 0
    printed = capfd.readouterr()
    said = re.search(
        r"round 2: your code copied the process \(os.fork\); the copy (\d+) ends, and the run", printed.err
    )
    assert said is not None
    assert os.waitstatus_to_exitcode(os.waitpid(int(said[1]), 0)[1]) == 1
    assert printed.out.count("done run=") == 1
    [run] = tmp_path.glob("*/config.yaml")
    assert read_directory(run.parent).status is RunStatus.FINISHED
    assert read_directory(run.parent).history.num_rows == 3


def test_a_run_whose_code_closes_the_output_ends_with_its_result(
    plugin: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(plugin, server="__import__('sys').stdout.close()")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert main(["run", *KEYS, "algorithm.name=failing", f"output.dir={tmp_path}"]) == 0
    error = capsys.readouterr().err
    assert "the standard output was closed (I/O operation on closed file); it would say: done run=" in error
    assert list(tmp_path.glob("*/result.json"))


def test_a_full_disk_that_a_hook_meets_is_one_with_its_place(plugin: Path, tmp_path: Path, capsys) -> None:
    write(plugin, server="raise OSError(28, 'No space left on device', '/scratch/notes')")
    assert main(["run", *KEYS, "algorithm.name=failing", f"output.dir={tmp_path}"]) == 4
    error = capsys.readouterr().err
    assert f"round 2: your code in server_direction ({plugin}, line " in error
    assert "could not write /scratch/notes: No space left on device" in error
    [run] = tmp_path.glob("*/config.yaml")
    assert read_directory(run.parent).ending is Ending.DISK_FULL


def test_a_plugin_that_changes_the_working_directory_moves_no_file(plugin: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    write(plugin, begin="import os; os.chdir(os.path.dirname(__file__) + '/elsewhere')")
    assert main(["run", *KEYS, "algorithm.name=failing", "output.dir=runs"]) == 0
    assert len([*(tmp_path / "runs").glob("*/result.json")]) == 1
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_a_round_that_a_callback_leaves_out_is_no_finished_run(plugin: Path, tmp_path: Path, capsys) -> None:
    plugin.write_text(
        "import lightning as L\nclass Skips(L.Callback):\n"
        "    def on_train_batch_start(self, *rest):\n        next(iter([]))\n"
    )
    assert main(["run", *KEYS[1:], "callbacks=[failing_plugin.Skips]", f"output.dir={tmp_path}"]) == 1
    assert "your code failed in a callback: round 1 was not carried out" in capsys.readouterr().err


def test_an_installed_plugin_is_named_like_a_file(plugin: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(user_code, "_LIBRARIES", (*user_code._LIBRARIES, str(tmp_path)))  # as if it were site-packages
    write(plugin, server="raise RuntimeError('no idea')")
    assert main(["run", *KEYS, "algorithm.name=failing", f"output.dir={tmp_path}"]) == 1
    assert f"your code failed in server_direction ({plugin}, line " in capsys.readouterr().err


def test_a_trial_that_calls_exit_does_not_end_its_sweep(plugin: Path, tmp_path: Path) -> None:
    write(plugin, local="raise SystemExit(0)")
    sweep = quick_sweep(tmp_path, {"algorithm.name": {"values": ["failing", "fedavg"]}}, *KEYS)
    status = launch_here(sweep, retries=0)
    assert (status.counts[TrialState.FAILED], status.counts[TrialState.FINISHED]) == (1, 1)


def test_nan_from_a_hook_is_a_diverged_run(plugin: Path, tmp_path: Path) -> None:
    write(plugin, local="return step.gradient * float('nan')")
    assert main(["run", *KEYS, "algorithm.name=failing", f"output.dir={tmp_path}"]) == 3


def test_a_sweep_goes_on_with_the_other_trials(plugin: Path, tmp_path: Path, capsys) -> None:
    write(plugin, local="raise RuntimeError('no idea')")
    sweep = quick_sweep(tmp_path, {"algorithm.name": {"values": ["failing", "fedavg"]}}, *KEYS)
    status = launch_here(sweep, retries=0)
    assert (status.counts[TrialState.FAILED], status.counts[TrialState.FINISHED]) == (1, 1)
    assert "your code failed in local_direction" in status.failed[0].data["message"]
    capsys.readouterr()
    assert main(["why", status.failed[0].run_id or "", "--dir", str(tmp_path / "runs"), "--lines", "3"]) == 0
    assert "RuntimeError: no idea" in capsys.readouterr().out


OTHERS = {
    "a callback": (
        "import lightning as L\nclass Watch(L.Callback):\n    def on_train_batch_end(self, trainer, *rest):\n"
        "        assert trainer.current_epoch < 1, 'seen enough'\n",
        "callbacks=[failing_plugin.Watch]",
        "round 2: your code failed in on_train_batch_end (",
        "AssertionError: seen enough",
        1,
    ),
    "a data set that ends the process": (
        "import sys\nfrom fl_platform import Dataset\nclass Leaving(Dataset, name='leaving'):\n"
        "    num_classes = 2\n    shape = (1, 4, 4)\n    def load(self, folder):\n        sys.exit(0)\n",
        "data.name=leaving",
        "before the first round: your code failed in load (",
        "SystemExit: 0",
        1,
    ),
    "a data set that meets a full disk": (
        "from fl_platform import Dataset\nclass Leaving(Dataset, name='leaving'):\n"
        "    num_classes = 2\n    shape = (1, 4, 4)\n"
        "    def load(self, folder):\n        raise OSError(28, 'full', 'x')\n",
        "data.name=leaving",
        "before the first round: your code in load (",
        "could not write x: full",
        4,
    ),
    "a callback that cannot be made": (
        "import sys\nimport lightning as L\nclass Watch(L.Callback):\n    def __init__(self):\n        sys.exit(0)\n",
        "callbacks=[failing_plugin.Watch]",
        "before the first round: your code failed in __init__ (",
        "SystemExit: 0",
        1,
    ),
    "rules that end the process": (
        "import sys\nfrom dataclasses import dataclass\nfrom fl_platform import Algorithm\n@dataclass(eq=False)\n"
        "class Failing(Algorithm, name='failing', label='Failing'):\n    @classmethod\n    def check(cls, config):\n"
        "        sys.exit(0)\n",
        "algorithm.name=failing",
        "before the first round: your code failed in check (",
        "SystemExit: 0",
        1,
    ),
    "a model that writes what its gradient needs": (
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.layer = nn.Linear(64, 10)\n"
        "    def forward(self, x):\n        h = self.layer(x.flatten(1)).relu()\n        h.mul_(2)\n        return h\n",
        "model.name=failing_plugin.Net",
        "round 1: your code failed in Net (",
        "its gradient cannot be computed: one of the variables",
        1,
    ),
    "a complex parameter": (
        "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.layer = nn.Linear(64, 10)\n"
        "        self.phase = nn.Parameter(torch.zeros(3, dtype=torch.complex64))\n"
        "    def forward(self, x):\n        return self.layer(x.flatten(1)) + self.phase.real.sum()\n",
        "model.name=failing_plugin.Net",
        "cannot be trained by workers: 'phase' is complex; only real tensors are supported",
        "",
        2,
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_code_of_the_users_is_named(case: str, plugin: Path, tmp_path: Path, capsys) -> None:
    source, key, sentence, reason, code = OTHERS[case]
    plugin.write_text(source)
    assert main(["run", *KEYS, key, f"output.dir={tmp_path}"]) == code
    error = capsys.readouterr().err
    assert sentence in error.splitlines()[-1]
    assert reason in error.splitlines()[-1]
    assert "lightning" not in error
    for config in tmp_path.glob("*/config.yaml"):
        assert read_directory(config.parent).ending is Ending.USER_CODE
