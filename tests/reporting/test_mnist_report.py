"""The committed MNIST report is what its archive gives, byte for byte, from any directory."""

from pathlib import Path

from fl_platform.cli import main

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "reports" / "mnist"
KEPT = ("*.csv", "*.png", "README.md", "variants.md")


def test_the_mnist_report_is_rebuilt_byte_for_byte(tmp_path: Path, monkeypatch) -> None:
    committed = {path.name: path.read_bytes() for pattern in KEPT for path in COMMITTED.glob(pattern)}
    assert {"README.md", "variants.md", "readings.csv", "readings_small_rate.png", "cost.csv"} <= committed.keys()
    monkeypatch.chdir(tmp_path)
    assert main(["report", "mnist"]) == 0
    place = tmp_path / "reports" / "mnist"
    rebuilt = {path.name: path.read_bytes() for pattern in KEPT for path in place.glob(pattern)}
    assert rebuilt.keys() == committed.keys()
    assert [name for name in committed if rebuilt[name] != committed[name]] == []
