"""``sweep restore``: a sweep goes on from an archive as if its runs were still there."""

import shutil
from pathlib import Path

from small_sweeps import SMALL, entries_of, launch_here, write_sweep

from fl_platform.cli import main
from fl_platform.runs import archive
from fl_platform.runs.sources import read
from fl_platform.sweeps.definition import Sweep, read_sweep


def sweep_in(directory: Path) -> Sweep:
    path = write_sweep(directory / "small.yaml", {"seed": {"values": [0, 1]}, "server_lr": {"values": [1.0, 1e30]}})
    return read_sweep(path, [*SMALL, f"output.dir={directory / 'runs'}"])


def test_a_sweep_goes_on_from_an_archive(tmp_path: Path, capsys) -> None:
    sweep = sweep_in(tmp_path)
    launch_here(sweep)
    before = {entry.run_id: (entry.state, entry.summary) for entry in entries_of(sweep)}
    logs = read([tmp_path / "runs"])
    archive.write(logs, tmp_path / "runs.parquet")
    shutil.rmtree(tmp_path / "runs")

    args = ["sweep", "restore", str(tmp_path / "runs.parquet"), "--into", str(tmp_path / "runs")]
    assert main(args) == 0
    assert "4 runs that ended, 4 of them new" in capsys.readouterr().out
    again = sweep_in(tmp_path)
    status = launch_here(again)
    assert (status.counts["finished"], status.counts["diverged"]) == (2, 2)
    found = {entry.run_id: (entry.state, entry.summary) for entry in entries_of(again)}
    assert {run: state for run, (state, _) in found.items()} == {run: state for run, (state, _) in before.items()}
    for run, (_, summary) in before.items():
        assert found[run][1]["test/top_accuracy"] == summary["test/top_accuracy"]
    assert not list((tmp_path / "runs").rglob("*.wandb"))  # nothing was run again
    assert main(args) == 0
    assert "4 runs that ended, 0 of them new" in capsys.readouterr().out


def test_what_is_no_archive_is_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 nothing")
    assert main(["sweep", "restore", str(tmp_path / "x.parquet"), "--into", str(tmp_path / "runs")]) == 2
    assert "nor an archive of runs" in capsys.readouterr().err
