"""The self-contained page: it holds all it shows, runs nothing else, and escapes everything."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fl_platform.cli import main
from fl_platform.reporting.page import json_in_html, make_page, split_configs
from fl_platform.reporting.shown import shown
from fl_platform.reporting.tables import statistic_table
from fl_platform.runs.frames import to_frames
from tests.dashboard.made_runs import HOSTILE
from tests.synthetic_logs import make_log, write_wandb_file


class Parsed(HTMLParser):
    """The elements of a page, as a browser's parser would cut them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {}
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside.setdefault(tag, []).append("")
        self.open = tag

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open:
            self.inside[self.open][-1] += data

    def data(self) -> Any:
        return json.loads(self.inside["script"][0])


def test_the_policy_names_the_only_script_and_style() -> None:
    page = Parsed(make_page("T", [], [make_log()]))
    policy = next(found["content"] or "" for tag, found in page.elements if found.get("http-equiv"))
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    for kind, text in (("script", page.inside["script"][1]), ("style", page.inside["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert [tag for tag, _ in page.elements].count("script") == 2


def test_nothing_is_fetched() -> None:
    page = Parsed(make_page("T", [], [make_log()]))
    for _, found in page.elements:
        for name in ("src", "href"):
            assert found.get(name) in (None, "data:,")


def test_hostile_text_stays_text() -> None:
    log = make_log(HOSTILE, data=HOSTILE, run_id=HOSTILE, note=HOSTILE)
    table = statistic_table(to_frames([log]))
    text = make_page(HOSTILE, [table], [log])
    page = Parsed(text)
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert "img" not in [tag for tag, _ in page.elements]
    assert page.data()["title"] == HOSTILE
    assert page.data()["common"]["note"] == HOSTILE


def test_json_in_html_cannot_end_its_element() -> None:
    text = json_in_html({"a": "</script><!--&"})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"a": "</script><!--&"}


def test_configurations_are_whole_and_stored_once() -> None:
    runs = [shown(make_log("moon", seed)) for seed in range(3)]
    common, own = split_configs(runs)
    assert common["data.name"] == "mnist"
    assert [values["seed"] for values in own.values()] == ["0", "1", "2"]
    for run in runs:
        assert {**common, **own[run.log.run_id]} == run.config
    assert split_configs([]) == ({}, {})


def test_curves_are_those_of_finished_runs() -> None:
    logs = [make_log("moon", seed, rounds=400) for seed in range(2)]
    logs += [make_log("moon", 7, status="crashed"), make_log("fedavg", 1, omega=0.01)]
    data = Parsed(make_page("T", [], logs)).data()
    charts = dict(data["panels"][0]["charts"])
    (line,) = charts["MNIST, ω=0.1, S=10"]["lines"]
    assert (line["label"], line["n"]) == ("MOON", 2)
    assert len(line["x"]) <= 160
    assert len(data["runs"]) == 4


def test_a_thousand_runs_are_a_few_megabytes() -> None:
    names = ("fedavg", "moon", "gradma", "mifa", "scaffold")
    logs = [
        make_log(name, seed, rounds=50, omega=omega, note="x" * 200)
        for name in names for seed in range(20) for omega in (1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005)
    ]  # fmt: skip
    assert len(logs) == 1000
    assert len(make_page("T", [], logs)) < 3_000_000


def test_report_html_is_written_beside_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("fedavg", "moon"):
        log = make_log(name)
        write_wandb_file(tmp_path / "runs" / "wandb" / f"offline-run-1-{name}" / f"run-{log.run_id}.wandb", log)
    (tmp_path / "reports" / "small").mkdir(parents=True)
    spec = "title: Small\nwhere: {algorithm.name: moon}\ntables: [{kind: statistic, name: t}]\n"
    spec += "figures: [{kind: curves, name: c, grouping: all}]\n"
    (tmp_path / "reports" / "small" / "report.yaml").write_text(spec, encoding="utf-8")
    assert main(["report", "small", "--source", "runs", "--html"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "reports/small/report.html"
    data = Parsed((tmp_path / "reports" / "small" / "report.html").read_text(encoding="utf-8")).data()
    assert [run["algorithm"] for run in data["runs"]] == ["MOON"]
    assert data["tables"][0]["blocks"][0][0][0] == "MOON"
    ((name, picture),) = data["pictures"]
    assert name == "c"
    assert re.match(r"data:image/png;base64,iVBOR", picture)
