"""Rows of long runs leave the memory and the checkpoint, and come back with the same bits, also after damage."""

import json
import shutil

import pytest
import torch
from pandas.testing import assert_frame_equal

import fl_platform as fl
from fl_platform.errors import UserError
from fl_platform.federation import history
from fl_platform.federation.history import History
from fl_platform.federation.trained import restored_module
from fl_platform.runs.checkpoint_files import sorted_checkpoints

KEYS = {
    "num_workers": 6,
    "cohort_size": 2,
    "local_steps": 1,
    "evaluation.every": 4,
    "algorithm.name": "scaffold",
    "checkpoint.every": 1,
    "tracking.mode": "disabled",
    "trainer.enable_progress_bar": False,
}


def row(round):
    return {"round": round, "test/loss": float("nan") if round % 7 == 0 else 1 / round, "cohort": [round, 2]}


def timeless(rows):
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(history, "ROWS_PER_FILE", 4)


def test_it_is_the_list_of_its_rows_with_few_of_them_in_memory_and_in_a_checkpoint(few_rows, tmp_path):
    kept, rows = History(tmp_path), []
    for round in range(1, 31):
        kept.append(row(round))
        rows.append(row(round))
        assert len(kept) == round
        assert repr(list(kept)) == repr(rows)  # NaN included
        assert repr(kept[-1]) == repr(rows[-1])
        assert len(json.loads(kept.state()["history"])) <= 4
    assert repr(kept[3:9]) == repr(rows[3:9])
    assert sorted(path.name[:20] for path in tmp_path.iterdir())[:2] == ["rows-0000001-0000004", "rows-0000005-0000008"]
    for directory in (tmp_path, tmp_path / "elsewhere", None):
        again = History(directory)
        again.load(kept.state(), tmp_path)
        assert repr(list(again)) == repr(rows)
    assert len(list((tmp_path / "elsewhere").iterdir())) == len(list(tmp_path.glob("rows-*"))) == 7


def test_rows_of_an_early_checkpoint_are_all_inside_it(few_rows, tmp_path):
    kept = History(tmp_path)
    kept.load({"history": json.dumps([row(round) for round in range(1, 10)])}, tmp_path)
    kept.append(row(10))
    assert len(kept) == 10
    assert len(json.loads(kept.state()["history_files"])) == 2


@pytest.mark.parametrize("name", ["../rows-1-4-0123456789abcdef.jsonl.gz", "/etc/passwd", 7, None])
def test_a_foreign_checkpoint_cannot_name_other_files(name, tmp_path):
    with pytest.raises(TypeError):
        History(tmp_path).load({"history": "[]", "history_files": json.dumps([name])}, tmp_path)


@pytest.fixture
def interrupted(few_rows, tmp_path):
    """A run of 12 rounds and its attempt, as a kill after round 10 leaves them."""
    whole = fl.run(KEYS, num_rounds=12, output={"dir": tmp_path / "whole"})
    killed = fl.run(KEYS, num_rounds=12, output={"dir": tmp_path / "killed"})
    (killed.directory / "result.json").unlink()
    [(_, newest), (_, before)] = sorted_checkpoints(killed.attempt / "checkpoints")
    newest.unlink()
    assert before.name.startswith("round-000011")
    return whole, killed.attempt, killed.directory.parent


def test_a_killed_run_goes_on_to_the_same_bits_from_few_rows(interrupted):
    whole, attempt, output = interrupted
    federated = torch.load(sorted_checkpoints(attempt / "checkpoints")[0][1], weights_only=True)["federated"]
    assert len(json.loads(federated["history"])) == 3
    again = fl.run(KEYS, num_rounds=12, output={"dir": output}, reuse=True)
    assert again.attempt == attempt
    assert again.summary["fingerprint"] == whole.summary["fingerprint"]
    texts = [(result.attempt / "rounds.jsonl").read_text() for result in (whole, again)]
    assert timeless(map(json.loads, texts[0].splitlines())) == timeless(map(json.loads, texts[1].splitlines()))
    assert again.rounds["round"].tolist() == list(range(1, 13))
    names = {path.name for path in (attempt / "checkpoints").glob("rows-*")}
    newest = torch.load(sorted_checkpoints(attempt / "checkpoints")[0][1], weights_only=True)["federated"]
    assert names == set(json.loads(newest["history_files"]))
    longer = fl.run(resume=again, num_rounds=14)
    assert longer.rounds["round"].tolist() == list(range(1, 15))
    assert len(restored_module(sorted_checkpoints(longer.attempt / "checkpoints")[0][1]).history) == 14


@pytest.mark.parametrize("damage", ["byte", "gone"])
def test_damaged_rows_are_taken_from_the_rounds_file_and_missing_ones_refused(damage, interrupted, capsys):
    whole, attempt, output = interrupted
    first, *_ = sorted((attempt / "checkpoints").glob("rows-*"))
    if damage == "gone":
        first.unlink()
    else:
        first.write_bytes(first.read_bytes()[:-9] + b"\xff" + first.read_bytes()[-8:])
    copy = output.parent / "copy"
    shutil.copytree(output, copy)
    again = fl.run(KEYS, num_rounds=12, output={"dir": output}, reuse=True)
    assert "its rows are taken from" in capsys.readouterr().err
    clock = ["time/round_seconds", "time/total_seconds"]
    assert_frame_equal(again.rounds.drop(columns=clock), whole.rounds.drop(columns=clock))
    (rounds,) = copy.glob("*/attempts/*/rounds.jsonl")
    rounds.write_bytes(b"\xff" + rounds.read_bytes()[1:])
    with pytest.raises(UserError, match=r"rows-0000001.* is missing or damaged, and .*rounds\.jsonl does not have"):
        fl.run(KEYS, num_rounds=12, output={"dir": copy}, reuse=True)
