"""The comparison with other programs, as far as it needs none of them."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.peers import environments, results, turns, work
from benchmarks.peers.__main__ import main
from benchmarks.peers.catalogue import PEERS, PROGRAMS, Peer, requirements
from benchmarks.peers.programs import common
from fl_platform.errors import UserError
from fl_platform.models import registry

PYTORCH = next(peer for peer in PEERS if peer.name == "pytorch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return work.write(work.settings_of("w2", small=True), tmp_path_factory.mktemp("peers") / "w2")


def test_every_worker_has_an_epoch_of_whole_batches_and_no_sample_has_two_workers(folder):
    read = common.load(folder)
    assert read.split.shape == (read.num_workers, read.steps * read.batch)
    assert len(np.unique(read.split)) == read.split.size
    assert read.train_x.dtype == np.float32
    assert abs(float(read.test_x.mean())) < 0.1
    ours = json.loads((folder / "split.json").read_text())
    assert ours["workers"] == read.split.tolist()


@pytest.mark.parametrize(("name", "shape"), [("mlp", (1, 28, 28)), ("lenet5", (3, 32, 32))])
def test_the_networks_are_this_platforms(monkeypatch, name, shape):
    monkeypatch.syspath_prepend(str(PROGRAMS))
    theirs = importlib.import_module("torch_parts").make_network(name).eval()
    ours = registry.build(name, shape, 10, norm="none", generator=torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
            yours.copy_(mine)
        x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(theirs(x), ours(x))


def test_programs_run_in_turns_and_one_that_fails_is_named(folder):
    broken = Peer("broken", "broken", "common")  # a module that is no program writes no report
    said: list[str] = []
    python = Path(sys.executable)
    found = turns.measure(
        [(PYTORCH, python), (broken, python)], folder, turns=2, warm_up=1, rounds=2, cores=1, say=said.append
    )
    assert [line.split(": ")[1] for line in said] == ["pytorch", "broken", "pytorch"]
    good, bad = found
    assert good.failure is None
    assert 0 < good.cpu_seconds < 60
    assert good.seconds > 0
    assert good.megabytes > 100
    assert good.versions["torch"] == torch.__version__
    assert "exit code 0" in str(bad.failure)
    assert "broken: no numbers" in results.as_text({"w2": found})


def measured(name: str, cpu: float) -> turns.Measured:
    peer = next(peer for peer in PEERS if peer.name == name)
    return turns.Measured(
        peer, seconds=2 * cpu, cpu_seconds=cpu, megabytes=512.4, accuracy=0.5, versions={"torch": "1"}
    )


def test_the_table_compares_cpu_time_with_ours(tmp_path):
    failed = turns.Measured(PEERS[-1], failure="pip install x failed: none")
    found = {"w1": [measured("fl_platform", 0.1), measured("pytorch", 0.15), failed]}
    text = results.as_markdown(found, {"processor": "P"}, "1 turn")
    assert "| plain PyTorch, a loop over workers | 3.33 | 150 | 1.50 x | 512 | 0.500 | torch 1 |" in text
    assert "fluke: no numbers, pip install x failed: none." in text
    readme = tmp_path / "README.md"
    readme.write_text(f"a\n{results.BEGIN}\nold\n{results.END}\nb\n")
    results.refresh(readme, text)
    assert readme.read_text() == f"a\n{results.BEGIN}\n{text}\n{results.END}\nb\n"
    assert [record["cpu_ms_per_round"] for record in results.as_records(found)] == [100, 150, None]


def test_the_clock_counts_rounds_after_those_that_warm_up(tmp_path):
    clock = common.Clock(warm_up=1, rounds=2, file=tmp_path / "report.json")
    clock.tick(0.1)
    with pytest.raises(RuntimeError, match="1 rounds have ended, not 3"):
        clock.finish()
    clock.tick(0.2)
    clock.tick(0.3)
    clock.finish("torch", "no-such-package")
    report = json.loads(clock.file.read_text())
    assert report["accuracy"] == 0.3
    assert report["versions"] == {"torch": torch.__version__, "no-such-package": "unknown"}


def test_what_pip_cannot_install_is_one_sentence(tmp_path):
    with pytest.raises(environments.NotInstalled, match=r"pip install .*no-such-folder failed: ERROR"):
        environments.install(Path(sys.executable), [str(tmp_path / "no-such-folder")])


def test_pytorch_is_installed_in_the_version_that_runs_here():
    assert requirements(PYTORCH)[0] == f"torch=={torch.__version__.partition('+')[0]}"
    assert all(peer.path.is_file() for peer in PEERS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "flowers"], "--only flowers: must be of fl_platform, pytorch"),
        (["--workloads", "w3"], "--workloads w3: must be of w1, w2"),
        (["--cores", "0"], "--cores 0: at least 1 is needed"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        main(arguments)
