"""The same command gives the same bits: in one process or several, in a sweep of any kind, and under Ray."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fl_platform.runs import wandb_logs
from fl_platform.runs.sources import discover
from tests.sweeps.small_sweeps import write_sweep
from tests.torture.hostile import call
from tests.torture.same_run import differences, left_by

KEYS = {
    "num_workers": 10, "cohort_size": 3, "num_rounds": 4, "local_steps": 2, "batch_size": 16, "checkpoint.every": 1,
    "seed": 5, "data.dirichlet_omega": 0.5, "availability.name": "bernoulli", "threads": 1,
}  # fmt: skip
OTHERS = ("fedavg", "scaffold", "moon", "mifa", "feddyn")  # one of each kind of state, besides gradma


def arguments_of(name: str) -> dict[str, Any]:
    return {**KEYS, "algorithm.name": name, **({"algorithm.memory_size": 6} if name.startswith("gradma") else {})}


def in_a_process(output: Path, name: str) -> None:
    args = [f"{key}={value}" for key, value in arguments_of(name).items()]
    command = [sys.executable, "-m", "fl_platform", "run", *args, f"output.dir={output}"]
    output.parent.mkdir(exist_ok=True)
    done = subprocess.run(command, cwd=output.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def in_this_process(output: Path, name: str) -> None:
    args = [f"{key}={value}" for key, value in arguments_of(name).items()]
    assert call("run", *args, f"output.dir={output}", "trainer.enable_progress_bar=false").code == 0


def in_a_sweep(*options: str) -> Callable[[Path, str], None]:
    def run(output: Path, name: str) -> None:
        parameters = {key: {"value": value} for key, value in arguments_of(name).items()}
        path = write_sweep(output.parent / f"{output.name}.yaml", parameters)
        command = [sys.executable, "-m", "fl_platform", "sweep", "run", str(path), f"output.dir={output}", *options]
        done = subprocess.run(command, cwd=output.parent, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return run


def bits(output: Path) -> Any:
    """What the run left, but for what says where and within what it ran."""
    left = left_by(output)
    for name in ("tracking", "trainer"):
        left.checkpoint["federated"]["config"].pop(name)
    return left


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    if not request.config.getoption("--torture"):
        pytest.skip("starts processes, which takes seconds: with --torture")
    output = tmp_path_factory.mktemp("reference") / "runs"
    in_a_process(output, "gradma")
    (path,) = discover(output).logs
    assert {"id", "group", "commit", "dirty"} < wandb_logs.read(path).config["run"].keys()
    assert wandb_logs.read(path).config["run"]["versions"]["torch"]  # what may change bits is recorded
    return bits(output)


WAYS: dict[str, Callable[[Path, str], None]] = {
    "this process": in_this_process,
    "a sweep": in_a_sweep("--jobs", "1"),
    "a sweep in one process": in_a_sweep("--in-process"),
    "a sweep under Ray": in_a_sweep("--engine", "ray", "--jobs", "1"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_running_gives_the_same_bits(
    way: str,
    reference: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    if "Ray" in way:
        pytest.importorskip("ray", reason="ray is not installed")
        with tempfile.TemporaryDirectory(dir="/tmp") as place:  # Ray's sockets need a short path
            Path(place, "ray").mkdir()
            Path(place, "ray", "ray_current_cluster").write_text("127.0.0.1:1")  # a cluster that is gone
            monkeypatch.setenv("RAY_TMPDIR", place)
            WAYS[way](tmp_path / "runs", "gradma")
    else:
        WAYS[way](tmp_path / "runs", "gradma")
    assert differences(reference, bits(tmp_path / "runs")) == []
    record_property(f"equal bits in {way}", "checkpoint, rows, result and report")


def test_twice_in_one_process_after_other_runs(
    tmp_path: Path, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    """What ran before in the process leaves no trace: no global generator, no cache that depends on history."""
    names = OTHERS if request.config.getoption("--torture") else OTHERS[1:2]
    for turn in ("first", "second"):
        for name in names:
            in_this_process(tmp_path / turn / name, name)
    for name in names:
        assert differences(bits(tmp_path / "first" / name), bits(tmp_path / "second" / name)) == []
    record_property("algorithms run twice in one process with equal bits", len(names))


def test_the_order_of_sets_and_dictionaries_is_no_input(
    reference: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(2):
        monkeypatch.setenv("PYTHONHASHSEED", str(seed))
        in_a_process(tmp_path / str(seed) / "runs", "gradma")
        assert differences(reference, bits(tmp_path / str(seed) / "runs")) == []
