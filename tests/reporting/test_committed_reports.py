"""Committed reports beside MNIST's are what their archives give, from any directory."""

from pathlib import Path

import pytest
import yaml

from fl_platform.cli import main
from fl_platform.errors import UserError
from fl_platform.reporting.key_lines import key_lines
from fl_platform.reporting.measures import per_run
from fl_platform.reporting.overview import overview_table
from fl_platform.reporting.tables import statistic_table, target_table
from fl_platform.runs.frames import load, select

REPORTS = Path(__file__).resolve().parents[2] / "reports"


FRESH = [1, 2, 3, 4, 5]  # seeds that the search has not seen
ARCHIVED = sorted(path.parent.name for path in REPORTS.glob("*/runs.parquet") if path.parent.name != "mnist")


@pytest.mark.parametrize("name", ARCHIVED)
def test_a_report_is_rebuilt_byte_for_byte(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = {
        path.name: path.read_bytes() for kind in ("*.csv", "README.md") for path in (REPORTS / name).glob(kind)
    }
    monkeypatch.chdir(tmp_path)
    assert main(["report", name, "--html"]) == 0
    rebuilt = {file: (tmp_path / "reports" / name / file).read_bytes() for file in committed}
    assert (tmp_path / "reports" / name / "report.html").stat().st_size > 100_000
    assert len(committed) > 1
    assert [file for file in committed if rebuilt[file] != committed[file]] == []


def test_the_settled_comparison_has_the_rates_that_the_search_chose() -> None:
    cases = yaml.safe_load((REPORTS / "settled" / "report.yaml").read_text(encoding="utf-8"))["cases"].values()
    file = REPORTS.parent / "sweeps" / "chosen_settled_mnist.yaml"
    chosen = yaml.safe_load(file.read_text(encoding="utf-8"))["chosen"]["mnist_w0.01_s10"]
    rates = {case["algorithm.name"]: [case["local_lr"], case["server_lr"]] for case in cases if case["seed"] == FRESH}
    assert rates == {name: [entry["keys"]["local_lr"], entry["keys"]["server_lr"]] for name, entry in chosen.items()}


def test_lines_over_a_key_are_means_over_seeds() -> None:
    runs = load(REPORTS / "robust" / "runs.parquet")
    part = select(runs, {"faults.kind": "sign_flip", "algorithm.name": ["fedavg", "rfa"], "data.dirichlet_omega": 0.1})
    figure = key_lines(part, "faults.probability", "final_accuracy", "faults.kind")
    axis = figure.axes[0]
    assert len(figure.axes) == 1
    assert axis.get_legend_handles_labels()[1] == ["FedAvg", "RFA"]
    expected = part.runs.assign(value=per_run(part)["final_accuracy"].reindex(part.runs["run_id"]).to_numpy())
    expected = expected[expected["config.algorithm.name"] == "fedavg"].groupby("config.faults.probability")["value"]
    drawn = axis.containers[0].lines[0]
    assert drawn.get_xdata().tolist() == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4], abs=0.02), "set a little apart"
    assert drawn.get_ydata() == pytest.approx(100 * expected.mean().to_numpy())


def test_lines_over_a_key_refuse_what_differs_besides() -> None:
    runs = load(REPORTS / "robust" / "runs.parquet")
    with pytest.raises(UserError, match=r"runs differ in .*faults.kind.* too; narrow them with where"):
        key_lines(runs, "faults.probability")


def test_an_overview_has_the_cells_of_its_tables() -> None:
    runs = load(REPORTS / "robust" / "runs.parquet")
    sound = {"faults.kind": "sign_flip", "faults.probability": 0.0}
    one = select(runs, {**sound, "data.dirichlet_omega": 0.1})
    found = overview_table(one, ["final_accuracy", "forgetting"], ["rounds"], target=0.9)
    apart = [statistic_table(one, "final_accuracy"), statistic_table(one, "forgetting"), target_table(one, target=0.9)]
    assert [text for text, _ in found.header[0]][2] == "Rounds to target"
    assert found.title == "Overview, target ac=90%"
    for place, table in enumerate(apart):
        cells = [[row.cells[place] for row in block] for block in found.blocks]
        assert cells == [[row.cells[0] for row in block] for block in table.blocks]
    with pytest.raises(UserError, match="an overview needs runs of one scenario"):
        overview_table(select(runs, sound), ["final_accuracy"], [])
