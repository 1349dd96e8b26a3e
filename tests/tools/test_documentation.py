"""Committed documents say what the code says, and the generator does what it claims."""

import re
from pathlib import Path

import pytest
import yaml

from fl_platform.algorithms import base
from fl_platform.config.options import walk
from fl_platform.config.registry import ALGORITHMS
from fl_platform.config.schema import known_keys
from fl_platform.errors import UserError
from fl_platform.paper.methods import METHODS
from fl_platform.reporting import report
from tools import documentation
from tools.documentation import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", documentation.DOCUMENTS)
def test_committed_documents_are_current(name):
    """Else run `make docs`."""
    assert documentation.read(ROOT / name) == documentation.current(ROOT, name)


def cells(table: str) -> list[list[str]]:
    """The cells of each row behind the head."""
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.strip().splitlines()]
    assert len({len(line) for line in lines}) == 1
    return [[cell.strip() for cell in line] for line in lines[2:]]


def test_the_options_table_has_every_key_with_its_default():
    rows = {row[0].strip("`").removesuffix(".*"): row[1:] for row in cells(documentation.options_table())}
    assert rows.keys() == known_keys().keys()
    assert rows["local_lr"] == ["`0.1`", "> 0; grid: 0.001, 0.01, 0.1", "eta\\_l"]
    assert rows["num_rounds"][0] == "`null`"
    assert rows["algorithm"][0] == "`{name: fedavg}`"
    assert rows["faults.reject_nonfinite"][0] == "`false`"
    assert rows["data.shards_per_worker"][2].endswith("; only with data.partition=shards")
    assert rows["data.shards_per_worker"][2].endswith("; only with data.partition=shards")
    assert rows["engine"][1] == "auto \\| loop \\| stacked"


def test_the_algorithms_table_has_the_sixteen_in_the_papers_order():
    rows = cells(documentation.algorithms_table())
    assert [row[0] for row in rows[:2]] == ["`fedavg`", "`fedprox`"]
    assert [row[0].strip("`") for row in rows[:16]] == list(METHODS)
    assert len(rows) > 16
    by_name = {row[0].strip("`"): row for row in rows}
    assert by_name["scaffold"][2:4] == ["worker", "2d / 2d"]
    qp = ("solver", "scope", "log_errors", "worker_margin")
    assert by_name["gradma_w"][5:] == [", ".join(["`previous_model`", *(f"`qp.{name}`" for name in qp)]), "9"]
    assert by_name["gradma"][6] == "81"


def test_every_method_and_field_has_its_place_in_the_document():
    text = documentation.read(ROOT / "docs/algorithms.md") + documentation.read(ROOT / "docs/methods.md")
    for kind in documentation.published():
        assert f"`algorithm.name={kind.name}`" in text
        assert re.search(rf"^###? .*\b{kind.label}\b", text, re.MULTILINE)
        for name, _ in walk(kind):
            assert f"`algorithm.{name}`" in text


def test_every_method_of_these_groups_has_its_equation_and_a_link_to_its_paper():
    groups = ("paper", "server optimiser", "worker correction", "personalised")
    kinds = [kind for kind in documentation.published() if kind.group in groups]
    assert len(kinds) >= 30
    for kind in kinds:
        assert documentation.equation(kind), kind.name
        assert "](https://" in documentation.linked(kind), kind.name
    assert documentation.equation(base.get("fedproxm")).count("quad") == 1  # slow momentum and FedProx's penalty


def test_algorithms_of_plugins_stay_out():
    class Elsewhere(base.Algorithm, name="documented_elsewhere"):
        """Registered by a module outside the package."""

    try:
        assert Elsewhere not in documentation.published()
        assert "documented_elsewhere" not in documentation.algorithms_table()
    finally:
        del ALGORITHMS._entries["documented_elsewhere"]


def test_text_becomes_markdown():
    assert documentation.prose("x_t * ``a_b`` <v, w> `c|d`") == "x\\_t \\* `a_b` \\<v, w> `c\\|d`"
    source = "One line:\n    x_t = 1\nthen\n- an item_\n  goes on"
    assert documentation.markdown(source) == "One line:\n\n    x_t = 1\n\nthen\n\n- an item\\_\n  goes on\n"
    assert documentation.table(("a", "b"), [("1", ""), ("2", "")]) == "| a |\n| --- |\n| 1 |\n| 2 |\n"


def test_results_are_top_final_and_fastest_round(tmp_path):
    path = tmp_path / "runs.csv"
    rows = [
        "fedavg,0,1,50.0,0.1",
        "fedavg,0,2,40.0,0.3",
        "fedavg,1,1,,0.2",
        "fedavg,1,2,60.0,0.4",
        "gradma,0,1,9.0,1.0",
    ]
    path.write_text("\n".join(["algorithm,seed,round,accuracy,seconds", *rows]) + "\n", encoding="utf-8")
    fedavg, gradma = cells(documentation.results_table(path))
    assert fedavg == ["FedAvg", "55.00 ± 7.07", "50.00 ± 14.14", "0.100"]
    assert gradma == ["GradMA", "9.00", "9.00", "1.000"]
    with pytest.raises(UserError, match="no such file"):
        documentation.results_table(tmp_path / "none.csv")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setattr(documentation, "DOCUMENTS", ("README.md",))
    return tmp_path


def test_write_renews_only_what_lies_between_marks(repository, capsys):
    document = repository / "README.md"
    document.write_text("above\n<!-- fedprox: generated -->\nold\n<!-- fedprox: end -->\nbelow\n", encoding="utf-8")
    assert main(["--write", "--root", str(repository)]) == 0
    assert capsys.readouterr().out == f"{document}\n"
    text = document.read_text(encoding="utf-8")
    assert text.startswith("above\n<!-- fedprox: generated -->\n\nFedProx: Li et al.")
    assert text.endswith("<!-- fedprox: end -->\nbelow\n")
    assert main(["--write", "--root", str(repository)]) == 0
    assert capsys.readouterr().out == ""
    assert main(["--root", str(repository)]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- fedprox: generated -->\n<!-- fedprox: end -->\n", "README.md are not current"),
        ("<!-- fedprocs: generated -->\n<!-- fedprocs: end -->\n", "did you mean 'fedprox'?"),
        ("<!-- fedprox: generated -->\n", "add <!-- fedprox: end -->"),
    ],
)
def test_a_document_that_is_wrong_is_refused_in_one_sentence(repository, text, message):
    (repository / "README.md").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(message)):
        main(["--root", str(repository)])
    (repository / "README.md").unlink()
    with pytest.raises(UserError, match="no such document"):
        main(["--root", str(repository)])


def test_docs_is_a_command(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    assert "--write" in capsys.readouterr().out


def test_every_kind_of_a_report_has_an_example_that_is_valid() -> None:
    for heading, makers in (("Tables", report.TABLES), ("Figures", report.FIGURES)):
        for kind in makers:
            entry = yaml.safe_load(documentation.example(heading, kind))
            assert report.make_item(kind, entry, makers, {}).make is makers[kind]
