"""Pages of a report: tables inside hand-written prose; and the table of what runs cost."""

import dataclasses
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.reporting.cost import cost_table
from fl_platform.runs import archive
from fl_platform.runs.frames import load, to_frames
from tests.synthetic_logs import make_log

SPEC = """
title: Small
tables:
  - {kind: statistic, name: top}
  - {kind: cost}
pages: [README.md]
"""
PAGE = "# Mine\n\nProse.\n\n<!-- top: generated -->\nold\n<!-- top: end -->\n\nMore.\n"


def report_in(place: Path, spec: str = SPEC, page: str = PAGE) -> Path:
    directory = place / "reports" / "small"
    directory.mkdir(parents=True)
    (directory / "report.yaml").write_text(spec, encoding="utf-8")
    (directory / "README.md").write_text(page, encoding="utf-8")
    archive.write([make_log("fedavg", 0), make_log("gradma", 0, level=0.9)], directory / "runs.parquet")
    return directory


def test_marked_parts_are_renewed_and_prose_is_left(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    directory = report_in(tmp_path)
    assert main(["report", "small"]) == 0
    text = (directory / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# Mine\n\nProse.\n\n<!-- top: generated -->\n\n")
    assert text.endswith("\n<!-- top: end -->\n\nMore.\n")
    assert "GradMA" in text
    assert "old" not in text
    assert (directory / "top.md").read_text(encoding="utf-8") in text
    assert main(["report", "small"]) == 0
    assert (directory / "README.md").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("spec", "page", "args"),
    [
        (SPEC, "<!-- tip: generated -->\n<!-- tip: end -->\n", "did you mean 'top'?"),
        (SPEC, "<!-- top: generated -->\n", "add <!-- top: end -->"),
        (SPEC.replace("README.md", "OTHER.md"), PAGE, "OTHER.md cannot be read"),
        (SPEC.replace("README.md", "../README.md"), PAGE, "is not a list of Markdown files beside the report"),
        (SPEC.replace("[README.md]", "7"), PAGE, "is not a list of Markdown files beside the report"),
    ],
)
def test_bad_pages_are_refused_and_nothing_is_written(tmp_path: Path, monkeypatch, capsys, spec, page, args) -> None:
    monkeypatch.chdir(tmp_path)
    directory = report_in(tmp_path, spec, page)
    before = {path.name for path in directory.iterdir()}
    assert main(["report", "small"]) == 2
    assert args in capsys.readouterr().err
    assert {path.name for path in directory.iterdir()} == before


def test_cases_name_runs_by_their_configuration(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    spec = """
title: Cases
cases:
  plain: {algorithm.mu: null}
  weak: {algorithm.mu: [0.1, 0.2]}
tables:
  - {kind: pivot, name: by_case, rows: [algorithm.name], columns: [case], value: top_accuracy}
"""
    directory = report_in(tmp_path, spec)
    logs = [make_log("fedavg", 0), make_log("fedprox", 0, algorithm__mu=0.2), make_log("fedprox", 0, algorithm__mu=5.0)]
    archive.write(logs, directory / "runs.parquet")
    assert main(["report", "small"]) == 0
    lines = (directory / "by_case.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("algorithm.name,case,n")
    assert [line.split(",")[:3] for line in lines[1:]] == [
        ["fedavg", "plain", "1"], ["fedprox", "weak", "1"], ["fedprox", "none", "1"],
    ]  # fmt: skip
    (directory / "report.yaml").write_text(spec.replace("algorithm.mu: null", "algorithm.mi: 1"), encoding="utf-8")
    assert main(["report", "small"]) == 2
    assert "case plain: algorithm.mi: no run has this configuration key; did you mean" in capsys.readouterr().err
    (directory / "report.yaml").write_text("title: x\ncases: [1]\n", encoding="utf-8")
    assert main(["report", "small"]) == 2
    assert "cases=[1] is not a mapping" in capsys.readouterr().err


def test_a_report_of_some_cases_archives_their_runs_only(tmp_path: Path, monkeypatch) -> None:
    """Two cases may be parts of one cell: a case is not a setting of its own."""
    monkeypatch.chdir(tmp_path)
    spec = """
where: {case: [searched, fresh]}
cases: {searched: {local_lr: 0.1, seed: 0}, fresh: {local_lr: 0.1, seed: 1}}
tables: [{kind: statistic, name: top, seeds: 2}]
"""
    directory = report_in(tmp_path, spec)
    logs = [make_log("fedavg", seed, local_lr=rate) for seed in (0, 1) for rate in (0.1, 0.01)]
    archive.write(logs, tmp_path / "all.parquet")
    assert main(["report", "small", "--source", str(tmp_path / "all.parquet"), "--archive"]) == 0
    kept = load(directory / "runs.parquet").runs
    assert kept["config.local_lr"].tolist() == [0.1, 0.1]
    assert '"0": ' in (text := (directory / "top.csv").read_text(encoding="utf-8").replace('""', '"')), text
    assert '"1": ' in text


def test_cost_counts_every_run_and_its_hours() -> None:
    logs = [
        make_log("fedavg", 0, rounds=7200),
        make_log("fedavg", 1, rounds=3600, status="diverged"),
        make_log("fedavg", 2, rounds=10, status="interrupted"),
        make_log("fedavg", 0, rounds=7200, omega=0.01),
    ]
    table = cost_table(to_frames(logs))
    rows = {row.label: [cell.text for cell in row.cells] for block in table.blocks for row in block}
    assert list(rows)[-1] == "all"
    assert rows["all"] == ["4", "2", "1", "1", "18010", "2.5"]
    assert sorted(rows[name] for name in rows if name != "all") == [
        ["1", "1", "0", "0", "7200", "1.0"],
        ["3", "1", "1", "1", "10810", "1.5"],
    ]
    assert table.numbers["runs"].tolist() == [3, 1]


def test_an_archive_names_no_directory_and_leaves_out_what_still_runs(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    directory = report_in(tmp_path, SPEC.replace("pages", "#"))
    damaged = make_log("fedavg", 0)
    damaged = dataclasses.replace(damaged, warnings=("/home/me/runs/run-7.wandb: a block is damaged",))
    archive.write([damaged, make_log("fedavg", 1, status="running")], tmp_path / "all.parquet")
    assert main(["report", "small", "--source", str(tmp_path / "all.parquet"), "--archive"]) == 0
    kept = archive.read(directory / "runs.parquet")
    assert [log.status for log in kept] == ["finished"]
    assert kept[0].warnings == ("run-7.wandb: a block is damaged",)
    assert b"/home/me" not in (directory / "runs.parquet").read_bytes()
