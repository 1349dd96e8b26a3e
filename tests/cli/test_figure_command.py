"""`figure` from the command line: every kind, formats and styles, and bad input."""

from pathlib import Path

import numpy as np
import pytest

from fl_platform.cli import main
from fl_platform.cli.figure import KINDS
from fl_platform.reporting.figures import QP_METRICS
from fl_platform.runs import archive, metrics
from tests.synthetic_logs import make_log

KEYS = {
    "key_curves": ["key=local_lr"],
    "key_lines": ["key=local_lr"],
    "bars": ["by=local_lr"],
    "heatmap": ["rows=local_lr", "columns=seed"],
    "speed_up": ["key=local_lr", "--where", "data.dirichlet_omega=0.1"],
}
BEST = {"absence", "curves", "cost", "forgetting", "qp", "seeds", "rank"}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    logged = {key: np.linspace(0, 1, 4) for key in QP_METRICS} | {
        metrics.WORKERS_LOSS: np.linspace(2, 1, 4),
        metrics.EACH_WORKER: [[0.5] * 10] * 4,
        metrics.COHORT: [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]],
    }
    logs = [
        make_log(name, seed, rounds=4, local_lr=rate, data="digits", omega=omega, columns=logged, num_workers=10)
        for name in ("fedavg", "gradma")
        for seed in (0, 1)
        for rate in (0.03, 0.1)
        for omega in (1.0, 0.1)
    ]
    archive.write(logs, tmp_path / "logs.parquet")
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_an_own_sweep(runs: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    keys = [*KEYS.get(kind, []), *(["select=best"] if kind in BEST else [])]
    args = ["figure", kind, *keys, "--source", "logs.parquet", "--out", f"made/{kind}.pdf", "--style", "cvpr-column"]
    assert main(args) == 0
    assert capsys.readouterr().out == f"made/{kind}.pdf\n"
    assert (runs / "made" / f"{kind}.pdf").read_bytes().startswith(b"%PDF")
    assert b"/MediaBox [ 0 0 234 " in (runs / "made" / f"{kind}.pdf").read_bytes(), "3.25 inches"


def test_formats_and_conditions(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--where", "local_lr=0.1", "--where", "data.dirichlet_omega=0.1"]
    for form, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        assert main(["figure", "curves", "--source", "logs.parquet", *where, "--out", f"a.{form}"]) == 0
        assert (runs / f"a.{form}").read_bytes().startswith(start)
    assert main(["figure", "curves", "--source", "logs.parquet", "--out", "lr.png", "by=local_lr"]) == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["curvs"], "figure=curvs is not known"),
        (["curves", "smoth=3"], "unknown key 'smoth'; did you mean 'smooth'?"),
        (["curves", "smooth=a"], "smooth=a has the wrong type; expected int"),
        (["curves"], "local_lr is 0.03 or 0.1"),
        (["bars"], "key is missing"),
        (["curves", "--style", "cvpr"], "--style=cvpr is not known"),
        (["curves", "--out", "a.jpg"], "the suffix must be one of .png, .svg, .pdf"),
        (["curves", "--source", "nothing"], "source nothing: no such file"),
        (["curves", "smooth=0", "select=best"], "smooth=0 is not allowed"),
        (["curves", "by=no_such_key"], "no run has this configuration key; the runs differ in "),
        (["curves", "by=name"], "did you mean algorithm.name or data.name"),
        (["curves", "kind=bars"], "kind=bars is no key of a figure; write the kind behind `figure`"),
        (["curves", "--source", "select=best"], "--source select=best is no source of runs"),
        (["key_lines", "key=data.name"], "key=data.name is digits in some runs"),
        (["heatmap", "rows=local_lr", "columns=local_lr"], "a heat map needs two different keys"),
        (["rank", "level=95", "select=best"], "level=95 is not allowed"),
    ],
)
def test_bad_input_is_one_sentence(
    runs: Path, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    assert main(["figure", *args[:1], "--source", "logs.parquet", "--out", "a.png", *args[1:]]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_keys_may_stand_behind_the_sources(runs: Path) -> None:
    assert main(["figure", "curves", "--out", "a.png", "--source", "logs.parquet", "select=best"]) == 0
    assert (runs / "a.png").is_file()


def test_runs_that_are_not_drawn_are_counted(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive.write([make_log("fedavg", 0), make_log("fedavg", 1, status="diverged")], runs / "some.parquet")
    assert main(["figure", "curves", "--source", "some.parquet", "--out", "a.png"]) == 0
    assert capsys.readouterr().err == "Not drawn, because not finished: 1 diverged.\n"


def test_report_power(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["report", "power", "--source", "logs.parquet", "--where", "local_lr=0.1"]
    assert main([*args, "--reference", "fedavg", "--difference", "1", "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("algorithm,data,skew,cohort_size,n,difference,spread,seeds")
    assert main(["report", "power"]) == 2
    assert "report power needs --source" in capsys.readouterr().err
