"""Committed reports: MNIST's is what its archive gives, byte for byte, and every one has a page."""

import json
from pathlib import Path

from fl_platform.cli import main
from fl_platform.reporting import render
from fl_platform.reporting.figures import QP_METRICS
from fl_platform.reporting.report import read_report
from fl_platform.runs import archive
from tests.synthetic_logs import make_log

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "reports" / "mnist"
KEPT = ("*.csv", "*.png", "README.md", "variants.md")


def test_the_mnist_report_is_rebuilt_byte_for_byte(tmp_path: Path, monkeypatch) -> None:
    committed = {path.name: path.read_bytes() for pattern in KEPT for path in COMMITTED.glob(pattern)}
    assert {"README.md", "variants.md", "readings.csv", "readings_small_rate.png", "cost.csv"} <= committed.keys()
    monkeypatch.chdir(tmp_path)
    assert main(["report", "mnist", "--html"]) == 0
    place = tmp_path / "reports" / "mnist"
    rebuilt = {path.name: path.read_bytes() for pattern in KEPT for path in place.glob(pattern)}
    assert rebuilt.keys() == committed.keys()
    assert [name for name in committed if rebuilt[name] != committed[name]] == []
    definition = read_report({"mnist": COMMITTED}, "mnist")
    for item in definition.tables:
        assert all((place / f"{item.name}{suffix}").stat().st_size for suffix, _ in render.FORMATS.values())
    page = (place / "report.html").read_text(encoding="utf-8")
    assert all(json.dumps(item.title)[1:-1] in page for item in definition.tables if item.title)


def test_the_demo_has_a_page(tmp_path: Path, monkeypatch) -> None:
    """From made-up runs of three methods: its own are made by a sweep of minutes."""
    monkeypatch.chdir(tmp_path)
    qp = {key: [1.0, 0.5] for key in QP_METRICS}
    names = ("fedavg", "fedavgm", "gradma_w", "gradma_s", "gradma")
    logs = [
        make_log(name, seed, rounds=2, data="digits", columns=qp, evaluation__targets=[0.1])
        for name in names
        for seed in (0, 1)
    ]
    archive.write(logs, tmp_path / "logs.parquet")
    assert main(["report", "demo", "--source", "logs.parquet", "--html"]) == 0
    definition = read_report({"demo": ROOT / "reports" / "demo"}, "demo")
    written = {path.name for path in (tmp_path / "reports" / "demo").iterdir()}
    assert {f"{item.name}.pdf" for item in definition.figures} | {"report.html"} <= written
