"""What a run leaves in W&B: a real client, offline, read back from its log."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from importlib.metadata import distributions, version

import pytest
import wandb
from wandb.proto.wandb_internal_pb2 import Record

from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.config.schema import to_dict
from fl_platform.errors import UserError
from fl_platform.federation.launch import launch
from fl_platform.runs import wandb_logs
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from fl_platform.tracking import identity, logger
from fl_platform.tracking.identity import describe
from fl_platform.tracking.logger import open_logger

ARGUMENTS = [
    "num_workers=10",
    "cohort_size=3",
    "num_rounds=4",
    "local_steps=2",
    "evaluation.every=2",
    "evaluation.targets=[0.1, 1.0]",
    "algorithm.name=gradma",
    "algorithm.memory_size=5",
    "checkpoint.every=3",
    "tracking.tags=[mine]",
    "data.partition=iid",
]


def spec_for(output, *args):
    return resolve(compose([*ARGUMENTS, *args, f"output.dir={output}"]))


def log_file(result):
    [path] = result.wandb_directory.glob("run-*.wandb")
    return path


def records_of(result):
    return map(Record.FromString, wandb_logs._payloads(log_file(result).read_bytes(), []))


def log_of(result):
    return wandb_logs.read(log_file(result))


def rows_of(log):
    """The logged rows without the keys they lack and without W&B's own."""
    return [
        {k: v for k, v in row.items() if v is not None and not k.startswith("_")} for row in log.history.to_pylist()
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    output = tmp_path_factory.mktemp("runs")
    spec = spec_for(output)
    return spec, launch(spec)


def test_every_round_is_logged_with_its_figures(finished):
    _, result = finished
    rows = rows_of(log_of(result))
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    always = {
        "train/loss",
        "update/norm",
        "cohort/size",
        "cohort/workers",
        "time/round_seconds",
        "time/total_seconds",
        "communication/total_bytes",
        "qp/worker_active_anchors",
        "qp/server_active_anchors",
        "memory/slots_used",
    }
    for row in rows:
        assert always <= row.keys()
        assert len(row["cohort/workers"]) == row["cohort/size"] == 3
        evaluated = {
            "test/accuracy",
            "test/loss",
            "test/class_accuracy",
            "test/forgetting",
            "test/top_accuracy",
        } & row.keys()
        assert len(evaluated) == (5 if row["round"] in (1, 3, 4) else 0)
    assert len(rows[0]["test/class_accuracy"]) == 10


def test_the_log_on_disk_and_the_rows_on_disk_agree(finished):
    spec, result = finished
    [path] = spec.output.glob("*/attempts/*/rounds.jsonl")
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows_of(log_of(result))


def plain_name(package):
    """The name of a package, however it is spelled."""
    return re.sub(r"[-_.]+", "-", package).lower()


def test_the_log_has_the_installed_packages_as_a_file(finished):
    _, result = finished
    lines = (result.wandb_directory / "files" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert f"torch=={version('torch')}" in lines
    assert f"lightning=={version('lightning')}" in lines
    names = {plain_name(line.partition("==")[0]) for line in lines}
    assert len(names) == len(lines) > 50
    assert names <= {plain_name(found.name) for found in distributions()}
    saved = [file.path for record in records_of(result) if record.HasField("files") for file in record.files.files]
    assert "requirements.txt" in saved  # so that `wandb sync` sends it


def test_the_summary_says_how_the_run_ended(finished):
    _, result = finished
    summary = log_of(result).summary
    rows = rows_of(log_of(result))
    accuracies = {row["round"]: row["test/accuracy"] for row in rows if "test/accuracy" in row}
    assert summary["status"] == "finished"
    assert summary["rounds"] == 4
    assert summary["fingerprint"] == result.summary["fingerprint"]
    assert summary["test/top_accuracy"] == max(accuracies.values())
    assert accuracies[summary["test/top_accuracy_round"]] == max(accuracies.values())
    assert summary["test/final_accuracy"] == accuracies[4]
    reached = next(round for round, accuracy in accuracies.items() if accuracy >= 0.1)
    row = next(row for row in rows if row["round"] == reached)
    assert summary["to_target/0.1/rounds"] == reached
    assert summary["to_target/0.1/bytes"] == row["communication/total_bytes"]
    assert summary["to_target/0.1/seconds"] == row["time/total_seconds"]
    assert "to_target/1/rounds" not in summary
    assert log_of(result).exit_code == 0


def test_the_config_holds_every_key_and_where_it_came_from(finished):
    spec, result = finished
    logged = dict(log_of(result).config)
    run = logged.pop("run")
    assert logged == json.loads(json.dumps(to_dict(spec.config)))
    assert (run["id"], run["group"]) == (spec.run_id, spec.group_id)
    assert run["versions"]["torch"] == version("torch")
    state = identity.git_state()
    assert (run["commit"], run["dirty"]) == (state["commit"], state["dirty"])


def test_the_run_is_named_grouped_and_tagged(finished):
    spec, result = finished
    log = log_of(result)
    assert log.run_id == spec.run_id
    assert log.group == f"gradma digits iid S3 · {spec.group_id[:4]}"
    assert log.name == f"gradma-digits-seed0-{spec.run_id}"
    assert set(log.tags) == {"gradma", "digits", "mine"}
    assert log.project == "fl_platform"


def test_round_is_the_x_axis(finished):
    _, result = finished
    records = records_of(result)
    axes = {
        record.metric.name or record.metric.glob_name: record.metric for record in records if record.HasField("metric")
    }
    assert axes["round"].step_metric == ""
    assert {metric.step_metric for name, metric in axes.items() if name != "round"} == {"round"}
    assert "*" in axes or "test/accuracy" in axes
    assert "trainer/global_step" not in axes


def test_a_login_is_looked_for_as_online_after_an_offline_run(finished, tmp_path, monkeypatch):
    modes = []
    monkeypatch.setattr(logger, "logged_in", lambda: modes.append(wandb.setup().settings.mode))  # offline finds none
    assert wandb.setup().settings.mode == "offline"
    spec = spec_for(tmp_path, "tracking.mode=online")
    with pytest.raises(UserError, match="wandb login"):
        open_logger(spec, describe(spec))
    wandb.setup(wandb.Settings(mode="offline"))
    assert modes == ["online"]


def test_nothing_is_left_behind_in_the_process(finished):
    assert wandb.run is None


def test_a_resumed_log_contains_all_rounds(finished, tmp_path):
    spec, whole = finished
    [checkpoints] = spec.output.glob("*/attempts/*/checkpoints")
    third = next(path for round, path in sorted_checkpoints(checkpoints) if round == 3)
    attempt = tmp_path / spec.run_id / "attempts" / "0001" / "checkpoints"
    attempt.mkdir(parents=True)
    (attempt / third.name).write_bytes(third.read_bytes())
    resumed = launch(spec_for(tmp_path), attempt / third.name)
    assert resumed.summary["fingerprint"] == whole.summary["fingerprint"]

    def timeless(result):
        return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows_of(log_of(result))]

    assert timeless(resumed) == timeless(whole)


def test_a_diverged_run_says_so(tmp_path):
    spec = resolve(compose([*ARGUMENTS[:4], "local_lr=1e30", "model.norm=none", f"output.dir={tmp_path}"]))
    result = launch(spec)
    log = log_of(result)
    assert (result.exit_code, log.exit_code) == (3, 3)
    assert log.summary["status"] == result.summary["status"] == "diverged"
    assert log.summary["diverged_round"] == result.summary["diverged_round"] == 1
    assert log.summary.get("test/top_accuracy") is None


def test_disabled_tracking_opens_nothing(tmp_path):
    spec = spec_for(tmp_path, "tracking.mode=disabled")
    assert open_logger(spec, describe(spec)) is None
    assert not (tmp_path / "wandb").exists()


def test_online_without_an_account_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    spec = spec_for(tmp_path, "tracking.mode=online")
    with pytest.raises(UserError, match=r"tracking\.mode=online needs a W&B account: run `wandb login`"):
        open_logger(spec, describe(spec))


def test_a_project_that_wandb_refuses_is_the_users_error(tmp_path):
    spec = spec_for(tmp_path, "tracking.project=a/b")
    with pytest.raises(UserError, match=r"W&B refuses .*tracking\.project=a/b"):
        open_logger(spec, describe(spec))


HOLDER = """
import sys, wandb
run = wandb.init(project="fl_platform", id=sys.argv[1], dir=sys.argv[2])
print("holds", flush=True)
sys.stdin.read()
run.finish()
"""


def test_a_run_that_another_process_has_open_is_the_users_error(finished, tmp_path):
    """Two processes, one W&B service: that of this process, which the other finds in its environment."""
    assert os.environ["WANDB_SERVICE"]
    command = [sys.executable, "-c", HOLDER, "heldrun", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "holds\n"
        spec = dataclasses.replace(spec_for(tmp_path), run_id="heldrun")
        with pytest.raises(UserError, match=r"W&B refuses run heldrun: run ID heldrun is in use; wait for the process"):
            open_logger(spec, describe(spec))
        holder.stdin.close()
    assert holder.returncode == 0
    assert wandb.run is None


def test_versions_name_what_is_installed_and_what_is_not():
    versions = identity.provenance()["versions"]
    assert versions["lightning"] == version("lightning")
    assert identity.installed("no-such-package-at-all") is None


def test_a_package_outside_a_checkout_has_no_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(identity, "__file__", str(tmp_path / "a" / "b" / "identity.py"))
    assert identity.git_state() == {"commit": None, "dirty": None}
