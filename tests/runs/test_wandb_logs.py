"""The reader of .wandb files against the real client, `wandb leet inspect`, and damage of every kind."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_platform.errors import UserError
from fl_platform.runs import wandb_logs
from fl_platform.runs.record import RunRecord
from tests.synthetic_logs import log_bytes, make_log, write_wandb_file

OFFLINE = """
import wandb
config = {"seed": 1, "data": {"omega": 0.1}, "x": None}
run = wandb.init(project="p", dir=DIR, id="abc", group="g", tags=["one", "two"], config=config)
run.define_metric("*", step_metric="round")
for round in range(1, 41):
    row = {"round": round, "loss": 1 / round, "cohort/workers": [1, 2, round], "deep": {"inner": round}}
    if round % 5 == 1:
        row["test/accuracy"] = float("nan") if round == 11 else round / 40
    run.log(row)
run.log({"round": 41, "text": "é" * 40_000})
run.summary["status"] = "finished"
run.config.update({"late": {"key": [1, 2]}})
END
"""


def client_environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    return own | {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}


@pytest.fixture(scope="module")
def real_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("real")
    code = OFFLINE.replace("DIR", repr(str(directory))).replace("END", "run.finish()")
    subprocess.run([sys.executable, "-c", code], env=client_environment(), check=True, timeout=120)
    (found,) = directory.glob("wandb/offline-run-*/*.wandb")
    return found


def inspect(path: Path, *flags: str) -> str:
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", *flags, str(path)]
    return subprocess.run(
        command, env=client_environment(), check=True, capture_output=True, text=True, timeout=60
    ).stdout


def inspected_history(path: Path) -> list[dict[str, object]]:
    records = map(json.loads, inspect(path).splitlines())
    return [record["history"]["item"] for record in records if record["type"] == "history"]


def as_inspected(log: RunRecord) -> list[dict[str, object]]:
    rows = []
    for row in log.history.to_pylist():
        present = {name: value for name, value in row.items() if value is not None}
        rows.append({name: "NaN" if value != value else value for name, value in present.items()})
    return rows


def test_real_log_equals_what_wandb_itself_reads(real_log: Path) -> None:
    log = wandb_logs.read(real_log)
    expected = inspected_history(real_log)
    expected[-1]["text"] = json.dumps(expected[-1]["text"])  # columns that are not numbers are JSON text
    assert as_inspected(log) == expected
    assert log.history.num_rows == 41

    summary = json.loads(inspect(real_log, "--summary"))
    assert log.config == summary["config"]
    ours = {name: value for name, value in log.summary.items() if name != "_wandb"}
    assert json.loads(json.dumps(ours).replace("NaN", '"NaN"')) == summary["summary"]
    assert (log.run_id, log.exit_code, list(log.tags)) == ("abc", summary["exit_code"], summary["tags"])
    assert (log.group, log.project, log.sweep, log.warnings) == ("g", "p", "", ())
    assert abs(log.started - real_log.stat().st_mtime) < 60


def test_killed_run_has_rows_but_no_exit_record(tmp_path: Path) -> None:
    code = OFFLINE.replace("DIR", repr(str(tmp_path))).replace("END", "import time; time.sleep(60)")
    process = subprocess.Popen([sys.executable, "-c", code], env=client_environment(), start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            logs = list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
            if logs and wandb_logs.read(logs[0]).history.num_rows:
                break
            time.sleep(0.2)
        assert wandb_logs.read_with_status(logs[0]).status == "running"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    log = wandb_logs.read(logs[0])
    assert log.exit_code is None
    assert log.history["round"].to_pylist()[0] == 1
    assert wandb_logs.with_status(log).status == "crashed"


def test_test_writer_is_readable_by_wandb(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    log = make_log("gradma", rounds=3)
    write_wandb_file(path, log)
    assert inspected_history(path) == log.history.to_pylist()


def test_schema_numbers_are_those_of_wandb() -> None:
    from wandb.proto import wandb_internal_pb2 as pb

    theirs = {
        "Item": pb.SummaryItem,
        "History": pb.HistoryRecord,
        "Changes": pb.SummaryRecord,
        "Exit": pb.RunExitRecord,
    }
    theirs |= {"Run": pb.RunRecord, "Record": pb.Record}
    for name, message in theirs.items():
        for field, number, _ in wandb_logs._MESSAGES[name]:
            assert message.DESCRIPTOR.fields_by_name[field].number == number, (name, field)
    for field, number, _ in wandb_logs._MESSAGES["Item"]:
        assert pb.HistoryItem.DESCRIPTOR.fields_by_name[field].number == number
        assert pb.ConfigItem.DESCRIPTOR.fields_by_name[field].number == number


@given(sizes=st.lists(st.integers(0, 70_000), max_size=8))
@settings(max_examples=40, deadline=None)
def test_payloads_survive_block_boundaries(sizes: list[int]) -> None:
    payloads = [bytes([index]) * size for index, size in enumerate(sizes)]
    damage: list[str] = []
    assert list(wandb_logs._payloads(log_bytes(payloads), damage)) == payloads
    assert damage == []


ROUNDS = 300


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "run-s.wandb"
    write_wandb_file(path, make_log(rounds=ROUNDS))
    return path


@given(share=st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_truncated_file_gives_its_beginning_and_a_warning(sample: Path, share: float) -> None:
    data, rounds = sample.read_bytes(), list(range(1, ROUNDS + 1))
    cut = sample.with_name("cut.wandb")
    cut.write_bytes(data[: int(share * (len(data) - 1))])
    log = wandb_logs.read(cut)
    found = log.history["round"].to_pylist() if log.history.num_rows else []
    assert found == rounds[: len(found)]
    assert len(found) >= int(share * len(rounds)) - 20
    assert log.exit_code is None
    assert all(str(cut) in text for text in log.warnings)


@given(place=st.integers(7, 10**9), bit=st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_flipped_bit_costs_little_and_is_reported(sample: Path, place: int, bit: int) -> None:
    data, rounds = sample.read_bytes(), list(range(1, ROUNDS + 1))
    broken = bytearray(data)
    broken[7 + place % (len(data) - 7)] ^= 1 << bit
    bad = sample.with_name("bad.wandb")
    bad.write_bytes(broken)
    log = wandb_logs.read(bad)
    found = log.history["round"].to_pylist()
    assert set(found) <= set(rounds)
    assert len(found) > 50  # at most one 32 KiB block of about 150 rows is lost
    assert log.warnings
    assert str(bad) in log.warnings[0]


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.wandb"
    path.write_bytes(b"PK\x03\x04 not a log")
    with pytest.raises(UserError, match=r"x\.wandb is not a W&B log"):
        wandb_logs.read(path)
    with pytest.raises(UserError, match="cannot be read"):
        wandb_logs.read(tmp_path / "absent.wandb")
    path.write_bytes(b"")
    assert wandb_logs.read(path).history.num_rows == 0


def test_values_of_every_kind(tmp_path: Path) -> None:
    history = {"round": [1, 2], "flag": [True, None], "args": ["a", "b"], "mixed": pa.array(["1", '"x"'])}
    log = dataclasses.replace(make_log(rounds=2), history=pa.table(history))
    path = tmp_path / "run-k.wandb"
    write_wandb_file(path, log)
    read = wandb_logs.read(path).history.to_pylist()
    assert [row["round"] for row in read] == [1.0, 2.0]
    assert [row["args"] for row in read] == ['"a"', '"b"']
    assert [row["flag"] for row in read] in ([1.0, None], ["true", None])


def test_reader_does_not_import_wandb_or_torch() -> None:
    code = "import sys, fl_platform.cli.report; print(sorted({'wandb', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
