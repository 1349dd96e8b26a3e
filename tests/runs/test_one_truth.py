"""One run, one truth: what the report, the dashboard, `result.json` and the W&B log say of the same runs."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from fl_platform.cli import main
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.dashboard.store import Store
from fl_platform.federation.launch import launch
from fl_platform.reporting import pivot, render
from fl_platform.reporting.measures import per_run
from fl_platform.reporting.shown import details, row
from fl_platform.runs import archive, metrics
from fl_platform.runs.frames import Runs, load
from fl_platform.runs.sources import discover, read
from fl_platform.runs.status import RunStatus
from fl_platform.sweeps.states import TrialState

PACKAGE = Path(__file__).resolve().parents[2] / "fl_platform"
SMALL = ["num_workers=10", "cohort_size=2", "local_steps=1", "num_rounds=4", "checkpoint.every=1"]
EXIT_CODES = {"finished": 0, "diverged": 3, "untracked": 0, "interrupted": 130, "untracked-interrupted": 130}


def carry_out(output: Path) -> dict[str, str]:
    """One run of each kind; returns their ids."""
    ids = {}
    for seed, (kind, code) in enumerate(EXIT_CODES.items()):
        args = [*SMALL, f"output.dir={output}", f"seed={seed}"]
        args += ["server_lr=1e30"] if kind == "diverged" else []
        args += ["tracking.mode=disabled"] if kind.startswith("untracked") else []
        rounds = iter(range(99))
        should_stop = (lambda rounds=rounds: next(rounds) == 1) if kind.endswith("interrupted") else None
        result = launch(resolve(compose(args, [])), None, should_stop)
        assert result.exit_code == code
        ids[kind] = result.summary["run"]
    return ids


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    output = tmp_path_factory.mktemp("truth") / "runs"
    return output, carry_out(output)


def said_by_report(output: Path) -> dict[str, tuple[Any, ...]]:
    runs = load([output])
    values = per_run(runs)
    found = {}
    for one in runs.runs.to_dict("records"):
        own = values.loc[one["run_id"]]
        top = None if pd.isna(own["top_accuracy"]) else own["top_accuracy"]
        found[one["run_id"]] = (one["status"], int(own["rounds"]), top, one["config.seed"], one["config.server_lr"])
    return found


def said_by_dashboard(output: Path) -> dict[str, tuple[Any, ...]]:
    found = {}
    for run_id, run in Store(output).look().runs.items():
        one, config = row(run), details(run)["config"]
        found[run_id] = (one["status"], one["round"], one["top"], one["seed"], float(config["server_lr"]))
    return found


def test_report_dashboard_and_result_agree(made: tuple[Path, dict[str, str]]) -> None:
    output, ids = made
    report = said_by_report(output)
    assert report == said_by_dashboard(output)
    kinds = {kind: report[run_id][0] for kind, run_id in ids.items()}
    assert kinds == {kind: kind.removeprefix("untracked-").replace("untracked", "finished") for kind in ids}
    assert [report[ids[kind]][1] for kind in ids] == [4, 1, 4, 2, 2]
    for kind in ("finished", "diverged", "untracked"):
        result = json.loads((output / ids[kind] / "result.json").read_text())
        said = (result[metrics.STATUS], result[metrics.ROUNDS], result[metrics.TOP_ACCURACY])
        assert said == report[ids[kind]][:3]
    assert not list(output.glob(f"{ids['interrupted']}/result.json"))


def without(runs: Runs, *columns: str) -> pd.DataFrame:
    return runs.runs.drop(columns=list(columns)).sort_index(axis=1)


def test_directories_and_wandb_logs_agree(made: tuple[Path, dict[str, str]]) -> None:
    output, _ = made
    from_logs = load([output / "wandb"])
    assert len(from_logs.runs) == 3
    whole = load([output])
    runs = whole.only(whole.runs["run_id"].isin(from_logs.runs["run_id"]))
    pd.testing.assert_frame_equal(
        runs.rounds.dropna(axis=1, how="all"), from_logs.rounds.dropna(axis=1, how="all"), check_like=True
    )
    other = ["source", "started", f"summary.{metrics.CLASS_ACCURACY}"]  # the last: 1.0 in one, 1 in the other
    in_result = [name for name in from_logs.runs if name.startswith("summary.") and name not in other]
    ended = runs.runs["status"].isin(["finished", "diverged"])
    pd.testing.assert_frame_equal(
        runs.only(ended).runs[in_result], from_logs.only(ended).runs[in_result], check_dtype=False
    )
    pd.testing.assert_frame_equal(
        without(runs, *other, *in_result), without(from_logs, *other, *in_result), check_dtype=False
    )
    tables = [pivot.pivot_table(one, ["algorithm.name"], ["seed"], "top_accuracy") for one in (runs, from_logs)]
    assert render.render(tables[0], "markdown") == render.render(tables[1], "markdown")


def test_the_directory_wins_over_every_other_source(made: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    output, ids = made
    archive.write(read([output]), tmp_path / "runs.parquet")
    shutil.copytree(output, tmp_path / "runs")
    rounds = next((tmp_path / "runs" / ids["finished"]).glob("attempts/*/rounds.jsonl"))
    changed = [json.loads(line) | {metrics.TEST_ACCURACY: 0.125} for line in rounds.read_text().splitlines()]
    rounds.write_text("".join(json.dumps(one) + "\n" for one in changed))
    runs = load([tmp_path / "runs.parquet", output / "wandb", tmp_path / "runs"])
    assert len(runs.runs) == len(ids)
    assert per_run(runs).loc[ids["finished"], "top_accuracy"] == 0.125


def test_restored_runs_show_everywhere_with_their_configuration(
    made: tuple[Path, dict[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, ids = made
    archive.write(read([output]), tmp_path / "runs.parquet")
    assert main(["sweep", "restore", str(tmp_path / "runs.parquet"), "--into", str(tmp_path / "runs")]) == 0
    assert "3 runs that ended, 3 of them new" in capsys.readouterr().out
    report = said_by_report(tmp_path / "runs")
    assert report == said_by_dashboard(tmp_path / "runs")
    before = said_by_report(output)
    assert report == {ids[kind]: before[ids[kind]] for kind in ("finished", "diverged", "untracked")}
    archived = load([tmp_path / "runs.parquet"])
    archived = archived.only(archived.runs["run_id"].isin(report))
    restored = load([tmp_path / "runs"])
    pd.testing.assert_frame_equal(
        without(restored, "source").dropna(axis=1, how="all"),
        without(archived, "source").dropna(axis=1, how="all"),
        check_dtype=False,
    )
    pd.testing.assert_frame_equal(restored.rounds, archived.rounds, check_like=True)
    one = discover(tmp_path / "runs").directories()[ids["finished"]]
    for name in ("config.yaml", "run.json"):  # an archive has its keys in alphabetical order, so other checksums
        found, wanted = (yaml.safe_load((place / name).read_text()) for place in (one, output / one.name))
        assert {**found, "checksums": {}} == {**wanted, "checksums": {}}


def test_a_directory_that_an_earlier_version_restored_gets_its_configuration(
    made: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    output, ids = made
    archive.write(read([output]), tmp_path / "runs.parquet")
    restored = tmp_path / "runs"
    args = ["sweep", "restore", str(tmp_path / "runs.parquet"), "--into", str(restored)]
    assert main(args) == 0
    expected = said_by_report(restored)
    for name in ("config.yaml", "run.json"):
        (restored / ids["finished"] / name).unlink()
    assert any("config.yaml is missing" in text for text in load([restored]).warnings)
    assert said_by_report(restored / ids["untracked"]) == {ids["untracked"]: expected[ids["untracked"]]}
    together = load([restored, tmp_path / "runs.parquet"])
    assert together.runs["config.algorithm.name"].notna().all()
    assert main(args) == 0
    assert said_by_report(restored) == expected


def test_a_directory_of_an_earlier_version_is_read(made: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """Neither `run.json` nor an end in `process.json`: the configuration, the rounds and the W&B log say the rest."""
    output, ids = made
    shutil.copytree(output, tmp_path / "runs", symlinks=True)
    for path in (tmp_path / "runs").glob("*/run.json"):
        path.unlink()
    for path in (tmp_path / "runs").glob("*/attempts/*/process.json"):
        path.write_text(json.dumps({name: json.loads(path.read_text())[name] for name in ("host", "pid")}))
    report = said_by_report(tmp_path / "runs")
    assert report == said_by_dashboard(tmp_path / "runs")
    before = said_by_report(output)
    lost = ids["untracked-interrupted"]  # nothing is left that could say it
    assert report == {**before, lost: ("crashed", *before[lost][1:])}


def test_a_run_under_way_is_running_everywhere_and_crashes_when_killed(tmp_path: Path) -> None:
    args = [*SMALL, "num_rounds=100000", "tracking.mode=disabled", f"output.dir={tmp_path / 'runs'}"]
    with subprocess.Popen([sys.executable, "-m", "fl_platform", "run", *args]) as process:
        while not any(path.stat().st_size for path in tmp_path.glob("runs/*/attempts/*/rounds.jsonl")):
            assert process.poll() is None
        report, dashboard = said_by_report(tmp_path / "runs"), said_by_dashboard(tmp_path / "runs")
        process.kill()
    assert [said[0] for said in (*report.values(), *dashboard.values())] == ["running"] * 2
    report = said_by_report(tmp_path / "runs")
    assert report == said_by_dashboard(tmp_path / "runs")
    assert [said[0] for said in report.values()] == ["crashed"]


def test_runs_are_read_without_torch_lightning_or_wandb() -> None:
    modules = [f"fl_platform.runs.{path.stem}" for path in (PACKAGE / "runs").glob("*.py") if path.stem != "__init__"]
    heavy = ("torch", "lightning", "wandb")
    code = f"import sys, {', '.join(modules)}\nsys.exit(', '.join(set(sys.modules) & set({heavy!r})) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_status_is_spelled_once() -> None:
    """As a text of its own; `started` is also the name of the time at which a run began."""
    args = {*(status.value for status in RunStatus), *(state.value for state in TrialState)} - {"started"}
    places: dict[str, set[str]] = {word: set() for word in args}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in args:
                places[node.value].add(str(path.relative_to(PACKAGE)))
    assert {word: len(found) for word, found in places.items()} == dict.fromkeys(args, 1), places
