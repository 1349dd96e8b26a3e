"""Every version reads what the versions before it left: `tests/golden` has a directory of each format."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

import fl_platform as fl
from fl_platform.cli import main
from fl_platform.errors import UserError
from fl_platform.federation.checkpoints import saved_config, write_named
from fl_platform.runs import archive, formats, sources
from fl_platform.runs.checkpoint_files import file_name, sorted_checkpoints
from fl_platform.runs.status import RunStatus
from fl_platform.sweeps.ledger import Ledger
from fl_platform.sweeps.states import TrialState

GOLDEN = Path(__file__).parents[1] / "golden"
FORMATS = sorted(path.name for path in GOLDEN.glob("format*"))


@pytest.fixture(params=FORMATS)
def golden(request, tmp_path, monkeypatch):
    """A copy to work in: readers may cache, launchers write."""
    shutil.copytree(GOLDEN / request.param, tmp_path / "golden")
    monkeypatch.chdir(tmp_path / "golden")
    return Path()


def sweep_directory(golden):
    (found,) = (golden / "golden_runs" / "sweeps").iterdir()
    return found


def test_there_is_one_of_each_format():
    assert [f"format{number}" for number in range(1, formats.DIRECTORY + 1)] == FORMATS
    assert formats.DIRECTORY == formats.CHECKPOINT == formats.LEDGER == formats.ARCHIVE


def test_run_directories_and_archives_are_read_as_they_were_written(golden):
    runs = {record.run_id: record for record in sources.read([golden / "golden_runs"])}
    archived = {record.run_id: record for record in archive.read(golden / "runs.parquet")}
    assert len(runs) == 4
    for run_id, record in runs.items():
        (rounds,) = (golden / "golden_runs" / run_id).glob("attempts/*/rounds.jsonl")
        rows = [json.loads(line) for line in rounds.read_text().splitlines()]
        result = json.loads((golden / "golden_runs" / run_id / "result.json").read_text())
        for read in (record, archived[run_id]):
            assert read.status is RunStatus.FINISHED
            assert read.summary["test/top_accuracy"] == result["test/top_accuracy"]
            assert read.summary["fingerprint"] == result["fingerprint"]
            assert read.history["test/accuracy"].to_pylist() == [row["test/accuracy"] for row in rows]
            assert not read.warnings
    methods = sorted(record.config["algorithm"]["name"] for record in runs.values())
    assert methods == ["fedavg", "fedavg", "gradma", "gradma"]


def test_a_sweep_is_read_and_goes_on(golden, capsys):
    directory = sweep_directory(golden)
    with Ledger(directory, read_only=True) as ledger:
        assert [entry.state for entry in ledger.entries()] == [TrialState.FINISHED] * 4
    assert main(["sweep", "run", "golden.yaml", "--in-process"]) == 0
    assert "4/4 done (4 finished)" in capsys.readouterr().out
    with closing(sqlite3.connect(directory / "ledger.sqlite")) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (formats.LEDGER,)
    assert len(list((golden / "golden_runs").glob("*/result.json"))) == 4


def test_an_archive_is_restored_under_the_ids_of_today_so_that_its_sweep_repeats_nothing(golden, capsys):
    assert main(["sweep", "restore", "runs.parquet", "--into", "restored"]) == 0
    results = sorted(Path("restored").glob("*/result.json"))
    assert len(results) == 4
    before = {path: path.read_bytes() for path in results}
    assert main(["sweep", "run", "golden.yaml", "output.dir=restored", "--in-process"]) == 0
    assert "4/4 done (4 finished)" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in Path("restored").glob("*/result.json")} == before
    assert {json.loads(text)["run"] for text in before.values()} == {path.parent.name for path in results}
    assert sorted(record.run_id for record in sources.read(["restored"])) == [path.parent.name for path in results]


def test_a_killed_run_goes_on_from_its_checkpoint(golden):
    (rounds,) = Path("killed").glob("*/attempts/0001/rounds.jsonl")
    rows = [json.loads(line) for line in rounds.read_text().splitlines()]
    result = fl.run({"trainer.enable_progress_bar": False}, resume=rounds.parents[2])
    assert result.summary["rounds"] == 6
    assert [json.loads(line) for line in rounds.read_text().splitlines()][:4] == rows[:4]
    newest = torch.load(sorted_checkpoints(rounds.parent / "checkpoints")[0][1], weights_only=True)
    assert newest["federated"]["format"] == formats.CHECKPOINT


NEWER = r"has format 99, of a newer version; this one reads formats up to 2"


def test_what_a_newer_version_wrote_is_refused_in_a_sentence_and_shown_beside_the_others(tmp_path, monkeypatch, capsys):
    shutil.copytree(GOLDEN / FORMATS[-1], tmp_path / "golden")
    monkeypatch.chdir(tmp_path / "golden")
    (killed,) = Path("killed").iterdir()
    [(round, newest)] = sorted_checkpoints(killed / "attempts" / "0001" / "checkpoints")
    content = torch.load(newest, weights_only=True)
    content["federated"]["format"] = 99
    written = write_named(content, newest.parent, lambda path: file_name(round, path))
    with pytest.raises(UserError, match=NEWER):
        saved_config(written)

    first, *others = sorted(Path("golden_runs").glob("*/run.json"))
    first.write_text(first.read_text().replace('"format": 2', '"format": 99'))
    records = {record.run_id: record for record in sources.read(["golden_runs"])}
    assert records[first.parent.name].status is RunStatus.CRASHED
    assert NEWER in records[first.parent.name].warnings[0]
    assert all(records[other.parent.name].status is RunStatus.FINISHED for other in others)
    description = killed / "run.json"
    description.write_text(description.read_text().replace('"format": 2', '"format": 99'))
    assert main(["run", "--resume", str(killed)]) == 2
    assert NEWER in capsys.readouterr().err

    table = pq.read_table("runs.parquet")
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"format": b"99"}), "newer.parquet")
    with pytest.raises(UserError, match=NEWER):
        archive.read(Path("newer.parquet"))

    ledger = sweep_directory(Path()) / "ledger.sqlite"
    with closing(sqlite3.connect(ledger)) as database:
        database.execute("PRAGMA user_version=99")
    assert main(["sweep", "status", str(ledger.parent)]) == 2
    assert NEWER in capsys.readouterr().err
