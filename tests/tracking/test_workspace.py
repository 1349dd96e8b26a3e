"""Publishing to W&B: the definitions without a login, and the real client against a loopback server."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fl_platform.cli import publish
from fl_platform.errors import UserError
from fl_platform.runs import metrics
from fl_platform.tracking import workspace
from fl_platform.tracking.workspace import Plan, definition
from tests.synthetic_logs import make_log, write_wandb_file
from tests.wandb_server import ENTITY, WandbServer

PLAN = Plan("team", "project", "Results", ["| a |\n|---|\n| 1 |"], ["to_target/0.9/rounds"])


def panels_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Every panel in a definition, wherever it stands."""
    if isinstance(content, dict):
        own = [content] if "viewType" in content else []
        return own + [panel for value in content.values() for panel in panels_of(value)]
    return [panel for value in content for panel in panels_of(value)] if isinstance(content, list) else []


@pytest.mark.parametrize("name", ["workspace", "report"])
def test_the_panels_that_matter(name: str) -> None:
    panels = panels_of(definition(PLAN)[name])
    drawn = {metric: panel["config"] for panel in panels for metric in panel["config"]["metrics"]}
    for metric in (metrics.TEST_ACCURACY, metrics.FORGETTING, metrics.QP_WORKER_ACTIVE, metrics.QP_SERVER_RATIO):
        assert drawn[metric]["xAxis"] == "round"
    assert drawn["to_target/0.9/rounds"]["chartTitle"] == "Rounds to 90 % accuracy"
    for config in drawn.values():
        assert config["groupBy"] == "algorithm.value.name"
        assert (config["groupAgg"], config["groupArea"]) == ("mean", "stddev")


def test_the_view_groups_runs_by_algorithm_and_counts_in_rounds() -> None:
    section = definition(PLAN)["workspace"]["spec"]["section"]
    assert section["runSets"][0]["grouping"] == [{"section": "config", "name": "algorithm.value.name"}]
    assert section["settings"]["xAxis"] == "round"


def test_the_report_holds_the_tables() -> None:
    blocks = definition(PLAN)["report"]["spec"]["blocks"]
    assert [block["content"] for block in blocks if block["type"] == "markdown-block"] == list(PLAN.tables)


def test_without_targets_there_is_no_empty_section() -> None:
    names = [
        one["name"]
        for one in definition(Plan("a", "b", "c"))["workspace"]["spec"]["section"]["panelBankConfig"]["sections"]
    ]
    assert "Rounds to the target accuracy" not in names
    assert "Forgetting" in names


def logs(place: Path) -> Path:
    for name, level in (("fedavg", 0.7), ("gradma", 0.9)):
        log = make_log(name, level=level, evaluation__targets=[0.5])
        log.summary["to_target/0.5/rounds"] = 9
        write_wandb_file(place / "runs" / "wandb" / f"offline-run-1-{name}" / f"run-{log.run_id}.wandb", log)
    return place / "runs"


def test_offline_says_what_it_would_create(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["team/project", "--source", str(logs(tmp_path)), "--offline-out", str(tmp_path / "out")]
    assert publish.main(args) == 0
    out = capsys.readouterr().out
    assert "would create in team/project" in out
    assert "Rounds to the target accuracy (1 panels)" in out
    assert "with 3 tables" in out
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    texts = [block["content"] for block in report["spec"]["blocks"] if block["type"] == "markdown-block"]
    assert "| GradMA | 89.57" in texts[0]
    assert (tmp_path / "out" / "workspace.json").is_file()


def test_without_a_login_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = logs(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert publish.main(["team/project", "--source", str(source)]) == 0
    assert "not logged in to W&B" in capsys.readouterr().err
    assert (tmp_path / "published" / "report.json").is_file()


@pytest.mark.parametrize("address", ["project", "a/b/c", "/b", "a/", "a b/c"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(UserError, match="is not of the form entity/project"):
        publish.main([address])


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--offline-out .* cannot be written"):
        workspace.save_definition(PLAN, tmp_path / "file")


class ViewServer(WandbServer):
    """Also keeps saved views and reports."""

    def __init__(self) -> None:
        super().__init__()
        self.views: list[dict[str, Any]] = []

    def on_UpsertView2(self, variables: dict[str, Any]) -> dict[str, Any]:
        self.views.append(variables)
        view = {"id": f"view{len(self.views)}", "name": variables["name"], "displayName": variables["displayName"]}
        view |= {"description": "", "spec": variables["spec"], "createdAt": "2024-01-01T00:00:00", "updatedAt": None}
        view |= {"project": {"id": "1", "name": variables["projectName"], "entityName": variables["entityName"]}}
        return {"upsertView": {"view": view, "inserted": True}}

    on_upsertView = on_UpsertView2
    on_UpsertView = on_UpsertView2

    def on_projectInternalId(self, variables: dict[str, Any]) -> dict[str, Any]:
        return self.project(internalId="77")

    on_ProjectInternalId = on_projectInternalId

    def on_GetProjects(self, variables: dict[str, Any]) -> dict[str, Any]:
        node = {
            "id": "1",
            "name": "project",
            "entityName": ENTITY,
            "createdAt": "2024-01-01",
            "isBenchmark": False,
            "user": None,
        }
        page = {"edges": [{"node": node, "cursor": "c"}], "pageInfo": {"endCursor": None, "hasNextPage": False}}
        return {"models": page}

    on_Projects = on_GetProjects


class OldServer(ViewServer):
    """Has no operation to save views."""

    on_UpsertView2 = on_upsertView = on_UpsertView = None  # type: ignore[assignment]


class OtherServer(ViewServer):
    """Saves views, and answers in another way than this client expects."""

    def on_UpsertView2(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {"upsertView": None}

    on_upsertView = on_UpsertView = on_UpsertView2


@pytest.mark.parametrize("kind", [OldServer, OtherServer])
def test_a_server_of_another_version_is_one_sentence(kind: type[ViewServer], tmp_path: Path) -> None:
    with kind() as server:
        command = [sys.executable, "-m", "fl_platform", "publish", f"{ENTITY}/project", "--source", str(logs(tmp_path))]
        done = subprocess.run(command, env=server.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert f"{ENTITY}/project cannot be published to: " in done.stderr
    assert "--offline-out DIR saves the definition" in done.stderr


def test_publish_through_the_real_client(tmp_path: Path) -> None:
    source = logs(tmp_path)
    code = "import sys; from fl_platform.cli.publish import main; sys.exit(main(sys.argv[1:]))"
    with ViewServer() as server:
        command = [sys.executable, "-c", code, f"{ENTITY}/project", "--source", str(source), "--title", "Mine"]
        done = subprocess.run(command, env=server.environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-1500:]
        assert len(done.stdout.splitlines()) == 2
        kinds = {view["type"]: view for view in server.views}
    assert set(kinds) == {"project-view", "runs"}
    assert kinds["project-view"]["displayName"] == workspace.NAME
    assert kinds["runs"]["displayName"] == "Mine"
    report = json.loads(kinds["runs"]["spec"])
    assert any(metric == metrics.TEST_ACCURACY for panel in panels_of(report) for metric in panel["config"]["metrics"])
