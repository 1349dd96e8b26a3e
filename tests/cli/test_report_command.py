"""`report` from the command line: listing, building, archives, free tables, and bad report files."""

import shutil
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.paper.packaged import packaged
from fl_platform.reporting import files as report_files
from fl_platform.reporting import report
from fl_platform.runs.frames import load
from tests.synthetic_logs import make_log, write_wandb_file

SPEC = """
title: Everything
select: best
seeds: 2
where: {data.name: mnist}
tables:
  - {kind: statistic, name: table1, complete: true}
  - {kind: statistic, name: forgetting, value: forgetting}
  - {kind: target, name: table2, target: 0.5}
  - {kind: target, name: bytes, unit: bytes}
  - {kind: paper_table1}
  - {kind: paper_table2}
  - {kind: significance, reference: fedavg}
  - {kind: pivot, rows: [algorithm.name], columns: [seed], value: area}
figures:
  - {kind: curves, name: worker, grouping: worker, where: {algorithm.name: [fedavg, moon]}}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, level in (("fedavg", 0.7), ("moon", 0.8), ("gradma", 0.9)):
        for seed in range(2):
            log = make_log(name, seed, level=level)
            write_wandb_file(
                tmp_path / "runs" / "wandb" / f"offline-run-1-{log.run_id}" / f"run-{log.run_id}.wandb", log
            )
    return tmp_path


def spec(place: Path, text: str, name: str = "all") -> Path:
    directory = place / "reports" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.yaml").write_text(text, encoding="utf-8")
    return directory


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


NAMES = ["benchmark", "cifar10", "demo", "forgetting", "mnist", "rates", "robust", "settled", "speedup"]


def test_list(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == NAMES, "packaged"
    spec(place, SPEC)
    spec(place, SPEC.replace("Everything", "My own"), "mnist")
    assert main(["report"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "all Everything"
    assert "mnist My own" in lines, "a report of one's own wins over a packaged one"
    assert len(lines) == len(NAMES) + 1


def test_build_from_logs_then_from_the_archive_gives_the_same_bytes(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = spec(place, SPEC)
    assert main(["report", "all", "--source", "runs", "--archive"]) == 0
    first = files(directory)
    for name in ("table1", "forgetting", "table2", "bytes", "paper_table1", "paper_table2", "significance", "pivot"):
        assert {f"{name}.md", f"{name}.tex", f"{name}.csv", f"{name}.html", f"{name}.txt"} <= first.keys()
    assert {"worker.png", "worker.svg", "worker.pdf", "report.md", "runs.parquet"} <= first.keys()
    assert "![worker](worker.png)" in first["report.md"].decode()
    assert main(["report", "all", "--out", "again"]) == 0
    second = files(place / "again")
    assert all(first[name] == second[name] for name in second)
    assert capsys.readouterr().err == ""


def test_an_archive_holds_the_runs_that_the_report_is_about(place: Path) -> None:
    directory = spec(place, "title: MOON\nwhere: {algorithm.name: moon}\ntables: [{kind: statistic, name: table1}]\n")
    assert main(["report", "all", "--source", "runs", "--archive"]) == 0
    kept = load(directory / "runs.parquet")
    assert set(kept.runs["config.algorithm.name"]) == {"moon"}
    assert len(kept.runs) < len(load("runs").runs)


def test_free_table(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["report", "--source", "runs", "--rows", "algorithm.name", "--columns", "data.dirichlet_omega,cohort_size"]
    assert main([*args, "--where", "seed=[0, 1]", "--where", "algorithm.name=moon", "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    assert "data.dirichlet\\_omega=0.1, cohort\\_size=10" in out
    assert "| MOON | " in out
    assert "(n=2)" in out
    assert "FedAvg" not in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--source", "runs", "--rows", "algoritm.name"], "did you mean 'algorithm.name'"),
        (["--source", "runs", "--rows", "seed", "--columns", "cohort"], "no run has this configuration key"),
        (["--source", "runs", "--rows", "seed", "--value", "top"], "--value=top is not known"),
        (["--source", "runs", "--rows", "seed", "--where", "seed"], "--where seed is not of the form key=value"),
        (["--source", "runs", "--rows", "seed", "--where", "seed=[1"], "not valid YAML"),
        (["--source", "runs", "--rows", "seed", "--where", "seed=9"], "there is 0, 1"),
        (["--source", "runs", "--rows", "seed", "--format", "word"], "format=word is not known"),
        (["--source", "runs", "--rows", ","], "--rows is empty"),
        (["--source", "absent", "--rows", "seed"], "source absent: no such file"),
        (["--rows", "seed"], "--rows needs --source"),
        (["al"], "report al is not known; did you mean 'all'?"),
        (["../secret"], "report ../secret is not known"),
    ],
)
def test_bad_words_get_one_sentence(
    place: Path, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    spec(place, SPEC)
    assert main(["report", *args]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_the_demos_report_asks_for_its_runs(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a copy of the package: in a checkout where the demo was run, its report has runs."""
    shutil.copytree(packaged("reports") / "demo", place / "package" / "reports" / "demo")
    monkeypatch.setattr("fl_platform.cli.report.packaged", lambda name: place / "package" / name)
    assert main(["report", "demo"]) == 2
    err = capsys.readouterr().err
    assert err.endswith("report demo has no runs yet: there is no runs/demo; run `fl_platform demo` first\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "holds no keys"),
        ("a: [", "cannot be read"),
        ("titel: x", "did you mean 'title'"),
        ("sources: runs", "sources=runs is not a list"),
        ("where: [1]", "where=[1] is not a mapping"),
        ("tables: 3", "tables=3 is not a list"),
        ("tables: [{kind: statistics}]", "did you mean 'statistic'"),
        ("tables: [7]", "tables[0]: kind=7"),
        ("tables: [{kind: statistic, name: ../../etc/x}]", "name=../../etc/x must be made of"),
        ("tables: [{kind: statistic, valu: area}]", "did you mean 'value'"),
        ("tables: [{kind: statistic, seeds: many}]", "seeds=many has the wrong type; expected int"),
        ("tables: [{kind: statistic, select: worst}]", "select=worst is not known"),
        ("tables: [{kind: statistic, paper_directory: /etc}]", "unknown key 'paper_directory'"),
        ("tables: [{kind: pivot, rows: [1], columns: [], value: area}]", "expected a list of names"),
        ("tables: [{kind: significance}]", "reference is missing"),
        ("tables: [{kind: target}, {kind: target}]", "the name target is given twice"),
        ("figures: [{kind: bars, where: 1}]", "key is missing"),
        ("figures: [{kind: qp, smooth: true}]", "smooth=True has the wrong type"),
    ],
)
def test_bad_reports_are_named(place: Path, text: str, message: str) -> None:
    spec(place, text)
    with pytest.raises(report.UserError) as caught:
        report.read_report(report_files.list_reports(place / "reports"), "all")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_log_is_a_warning_in_the_table_and_on_the_screen(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = spec(place, "tables: [{kind: statistic, name: t, seeds: 2}]")
    log = next(place.glob("runs/wandb/*/*.wandb"))
    log.write_bytes(log.read_bytes()[:-30])
    assert main(["report", "all", "--source", "runs"]) == 0
    assert f"{log.relative_to(place)}: it ends in the middle of a record" in capsys.readouterr().err
    assert "middle of a record" in (directory / "t.md").read_text()
    assert "Not averaged: 1 running" in (directory / "t.md").read_text()


def test_power_is_not_the_name_of_a_report(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "power", "--source", "runs"]) == 0
    (place / "reports" / "power").mkdir(parents=True)
    (place / "reports" / "power" / "report.yaml").write_text(SPEC, encoding="utf-8")
    assert main(["report", "power", "--source", "runs"]) == 2
    assert "differences need; rename it" in capsys.readouterr().err
    assert main(["report", "mnist", "--reference", "fedavg"]) == 2
    assert "--reference belongs to `report power`, not to mnist" in capsys.readouterr().err
