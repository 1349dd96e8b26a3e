"""Every format with hostile text: nothing escapes from its cell."""

import dataclasses
import html.parser
import io
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fl_platform.errors import UserError
from fl_platform.reporting import latex, pivot, render, tables
from fl_platform.reporting.layout import Cell, Row, Table
from fl_platform.reporting.symbols import SYMBOLS
from fl_platform.runs import frames as runs
from fl_platform.runs.record import merge
from tests.synthetic_logs import make_log

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    r"\input{/etc/passwd} \write18{rm -rf /}",
    "100% & $x_1^2$ #1 {a} ~ \\",
    "a | b || c",
    "[link](javascript:alert(1)) ![i](http://x) <http://y> www.evil.example **bold** `code`",
    "\x1b[31mred\x1b[0m \x07 \x9b2J",
    "line\nbreak\r\n| injected | row |",
    "=HYPERLINK(1)",
    "@SUM(A1)",
    "\u202eright to left\u2066",
    "../../etc/passwd",
    "\ud800 lone surrogate",
    "数据 🙂 é ß",
    "",
]


def table_of(text: str) -> Table:
    held = text.encode("utf-8", "replace").decode()  # what a frame can hold
    numbers = pd.DataFrame({"algorithm": [held], "mean": [1.5]})
    return Table(
        text, (((text, 1), ("plain", 1)),), ((Row(text, (Cell(text, True), Cell("1"))),),), (text,), numbers, text
    )


class Structure(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(sorted(name for name, _ in attributes))))


def html_structure(text: str) -> list[tuple[str, tuple[str, ...]]]:
    parser = Structure()
    parser.feed(render.page(table_of(text)))
    return parser.tags


def latex_is_well_formed(source: str) -> bool:
    """Balanced braces and maths, no command outside those the renderer itself writes, the same cells in every row."""
    body = source[source.index(r"\begin{table") :]
    for symbol in SYMBOLS.values():
        body = body.replace(f"${symbol}$", "$x$")
    allowed = {"begin", "end", "centering", "caption", "label", "small", "footnotesize", "scriptsize", "setlength"}
    allowed |= {
        "belowcaptionskip",
        "tabcolsep",
        "toprule",
        "midrule",
        "cmidrule",
        "bottomrule",
        "multicolumn",
        "shortstack",
        "textbf",
    }
    allowed |= {"pm", "omega", "beta", "times", "textbackslash", "textasciitilde", "textasciicircum", "textless"}
    allowed |= {"textgreater", "textbar"}
    tokens = re.findall(r"\\(?:[a-zA-Z]+|.|\n)|[{}$&%#_^~]", body)
    depth = maths = 0
    for token in tokens:
        if re.fullmatch(r"\\[a-zA-Z]+", token):
            if token[1:] not in allowed:
                return False
        elif token.startswith("\\"):
            if token[1:] not in "\\&%$#_{}":
                return False
        elif token in "{}":
            depth += 1 if token == "{" else -1
        elif token == "$":
            maths ^= 1
        elif token in "#_^~":
            return False
        if depth < 0:
            return False
    for part in body.split(r"\begin{table")[1:]:
        rows = [line for line in part.splitlines() if line.endswith(r"\\") and not line.startswith(r"\multicolumn")]
        if len({len(re.findall(r"(?<!\\)&", re.sub(r"\\&", "", line))) for line in rows}) != 1:
            return False
    return depth == 0 and maths == 0


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_in_its_cell(text: str) -> None:
    assert html_structure(text) == html_structure("harmless")
    assert "\x1b" not in render.page(table_of(text))

    rows = [line for line in render.markdown(table_of(text)).splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [4, 4, 4]
    plain = re.sub(r"\\.", "", render.markdown(table_of(text)))
    assert not re.search(r"[<>`\[\]]|https?:|www\.", plain)

    assert latex_is_well_formed(render.latex(table_of(text)))

    shown = render.terminal(table_of(text))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    assert len(shown.splitlines()) <= len(render.terminal(table_of("harmless")).splitlines())

    read = pd.read_csv(io.StringIO(render.csv(table_of(text))), keep_default_na=False)
    assert read.shape == (1, 2)
    assert read["mean"].tolist() == [1.5]
    assert not str(read["algorithm"][0]).startswith(("=", "+", "-", "@"))


@given(st.text(max_size=40))
@example("local_lr")  # which has a symbol of its own
@settings(max_examples=150, deadline=None)
def test_any_text_keeps_html_and_latex_well_formed(text: str) -> None:
    assert html_structure(text) == html_structure("x")
    assert latex_is_well_formed(render.latex(table_of(text)))
    render.latex(table_of(text)).encode("latin-1")


def test_hostile_run_values_reach_every_format(tmp_path: Path) -> None:
    logs = [
        make_log(text or "empty", data=text or "empty", run_id=text or "r", status=status)
        for text in HOSTILE
        for status in ("finished", "crashed")
    ]
    loaded = runs.to_frames(merge([log for log in logs if log.status == "finished"] + logs[1:2]))
    made = [
        tables.statistic_table(loaded),
        pivot.pivot_table(loaded, ["algorithm.name"], ["data.name"], "top_accuracy"),
    ]
    for table in made:
        for form in render.FORMATS:
            (tmp_path / "file").write_text(render.render(table, form), encoding="utf-8")
        assert latex_is_well_formed(render.latex(table))


def has_latex() -> bool:
    finder = shutil.which("kpsewhich")
    return finder is not None and subprocess.run([finder, "booktabs.sty"], capture_output=True).returncode == 0


@pytest.mark.skipif(not has_latex(), reason="pdflatex with booktabs is not installed")
def test_latex_compiles_on_its_own(tmp_path: Path) -> None:
    rows = tuple(Row(text, (Cell(text, True), Cell("98.22±0.05"))) for text in HOSTILE)
    table = Table("Top ω", ((("MNIST, S=10", 2),), (("ω=1.0", 1), ("ω=0.1", 1))), (rows[:4], rows[4:]), tuple(HOSTILE))
    wide = Table("W", ((("MNIST", 9), ("CIFAR", 9)), (("ω=1.0", 1),) * 18), ((Row("a", (Cell("98.22±0.05"),) * 18),),))
    long = Table("L", ((("ours", 1),),), ((Row("one: a", (Cell("1"),)),) * 30, (Row("two: a", (Cell("1"),)),) * 30))
    for name, one in (("t", table), ("wide", wide), ("long", long)):
        (tmp_path / f"{name}.tex").write_text(render.latex(dataclasses.replace(one, name=name)), encoding="utf-8")
    (tmp_path / "preview.tex").write_text(latex.preview(["t", "wide", "long"], []), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "preview.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=60)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout.partition("(./wide.tex")[2], "tables of this kind fit on the page"


def test_latex_is_for_a_paper() -> None:
    """One float with label and caption, marks explained, no run named; cut between data sets where it is too wide."""
    logs = [make_log(name, seed) for name in ("fedavg", "moon") for seed in range(3)]
    loaded = runs.to_frames(merge([*logs, make_log("fedavg", 9, status="crashed", run_id="deadbeef1234")]))
    source = render.latex(dataclasses.replace(tables.statistic_table(loaded), name="table_1"))
    assert r"\documentclass" not in source
    assert r"\label{tab:table-1}" in source
    assert source.count(r"\begin{tabular}") == 1
    assert "deadbeef1234" in render.markdown(tables.statistic_table(loaded))
    assert "Not averaged: 1 crashed." in source
    assert "deadbeef1234" not in source
    assert "Bold: the best of its group" in source
    cells = (Cell("98.22±0.05 (n=2)"),) * 14
    head = (("MNIST, S=10", 5), ("CIFAR-10, S=10", 9))
    wide = Table("T", (head, (("ω=1.0", 1),) * 14), ((Row("FedAvg", cells),),), name="t")
    assert re.findall(r"\\label{(.*?)}", render.latex(wide)) == ["tab:t-mnist", "tab:t-2", "tab:t-3"]
    narrower = Table("T", ((("MNIST, S=10", 5), ("CIFAR-10, S=10", 5)), (("ω=1.0", 1),) * 10), wide.blocks, name="t")
    narrower = dataclasses.replace(narrower, blocks=((Row("FedAvg", cells[:10]),),))
    assert re.findall(r"\\label{(.*?)}", render.latex(narrower)) == ["tab:t-mnist", "tab:t-cifar-10"]


def test_only_one_is_not_the_best() -> None:
    alone = tables.statistic_table(runs.to_frames(merge([make_log("fedavg"), make_log("gradma")])))
    assert not [cell for block in alone.blocks for row in block for cell in row.cells if cell.is_bold]
    assert not [note for note in alone.notes if "Bold" in str(note)]


def test_formats_are_deterministic_and_named() -> None:
    for form in render.FORMATS:
        assert render.render(table_of("x"), form) == render.render(table_of("x"), form)
    with pytest.raises(UserError, match="did you mean 'latex'"):
        render.render(table_of("x"), "latx")


def test_csv_holds_unrounded_numbers() -> None:
    loaded = runs.to_frames(merge([make_log(seed=seed, accuracy=[top]) for seed, top in enumerate((0.1, 0.2, 0.4))]))
    read = pd.read_csv(io.StringIO(render.csv(tables.statistic_table(loaded))))
    assert read["mean"][0] == pytest.approx(70 / 3, rel=1e-15)
    assert {"std_ddof0", "std_ddof1", "n", "by_seed", "data", "skew", "cohort_size"} <= set(read.columns)
