"""Code that is not the platform's and fails in a round: named with its hook, line and round; the rest stays intact."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.config.registry import ALGORITHMS
from fl_platform.runs.checkpoint_files import newest_valid
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.reader import read_directory
from fl_platform.runs.status import RunStatus
from fl_platform.sweeps.states import TrialState
from tests.sweeps.small_sweeps import launch_here, quick_sweep

PLUGIN = '''
from dataclasses import dataclass
import torch
from fl_platform import Algorithm

@dataclass(eq=False)
class Failing(Algorithm, name="failing", label="Failing"):
    """Fails in its second round."""

    def begin_round(self, workers, round):
        self.is_due = round == 2
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
    [run] = tmp_path.glob("*/config.yaml")
    attempt = RunDirectory(tmp_path, run.parent.name).newest_attempt()
    assert attempt is not None
    assert newest_valid(attempt / "checkpoints") is not None
    record = read_directory(run.parent)
    assert record.status is RunStatus.CRASHED
    assert record.history.num_rows == 1
    assert record.summary["crash_cause"] == "user_code"
    assert main(["why", run.parent.name, "--dir", str(tmp_path)]) == 0
    explained = capsys.readouterr().out
    assert f"run {run.parent.name} crashed: code of yours failed (plugin, model or callback); 1 of 3" in explained


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
