"""Damaged logs, caches and archives: a report says so, or is the one of the sound file."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from fl_platform.dashboard.store import Store
from fl_platform.runs import archive
from tests.dashboard.made_runs import write_run
from tests.synthetic_logs import make_log, write_wandb_file
from tests.torture.hostile import Tally, bounded, damaged, damaged_text, explore, flipped, json_values, judge, texts

Scale = Callable[[int, int], int]
Note = Callable[[str, object], None]
LOGS = [make_log(name, seed, rounds=30) for name in ("fedavg", "gradma") for seed in range(2)]
TABLE = ("report", "--rows", "algorithm.name", "--columns", "seed", "--value", "final_accuracy", "--format", "csv")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_logs(place: Path) -> list[Path]:
    paths = [place / "wandb" / f"run-{log.run_id}" / f"run-{log.run_id}.wandb" for log in LOGS]
    for path, log in zip(paths, LOGS, strict=True):
        write_wandb_file(path, log)
    return paths


def test_damaged_wandb_files(here: Path, scale: Scale, record_property: Note) -> None:
    paths = write_logs(here / "logs")
    sound, table = paths[0].read_bytes(), judge(*TABLE, "--source", "logs").out
    warned, tally = 0, Tally()
    for number in range(scale(20, 1500)):
        paths[0].write_bytes(damaged(sound, random.Random(number)))
        warned += tally.judge(*TABLE, "--source", "logs").out != table
    assert warned > scale(20, 1500) // 2
    tally.record(record_property, "damaged .wandb files", at_least=0.5)


def test_an_archive_with_a_flipped_bit_is_refused_or_read_as_it_was(
    here: Path, scale: Scale, record_property: Note
) -> None:
    """Never a number that is not the run's."""
    path = here / "runs.parquet"
    archive.write(LOGS, path)
    sound, table = path.read_bytes(), judge(*TABLE, "--source", "runs.parquet").out
    tally = Tally()
    for number in range(scale(60, 2000)):
        path.write_bytes(flipped(sound, random.Random(number), 1))
        outcome = tally.judge(*TABLE, "--source", "runs.parquet")
        assert outcome.code == 2 or outcome.out == table, f"case {number} shows other figures"
    tally.record(record_property, "archives with one flipped bit", at_least=0.08)


def test_damaged_archives(here: Path, scale: Scale, record_property: Note) -> None:
    path = here / "runs.parquet"
    archive.write(LOGS, path)
    sound, tally = path.read_bytes(), Tally()
    for number in range(scale(60, 1500)):
        path.write_bytes(damaged(sound, random.Random(number)))
        tally.judge(*TABLE, "--source", "runs.parquet")
    tally.record(record_property, "damaged archives", at_least=0.02)


def test_foreign_parquet_files(here: Path, scale: Scale, record_property: Note) -> None:
    """Sound Parquet that is no archive, or an archive whose runs say hostile things."""
    header = json.loads(pq.read_table(written(here / "sound.parquet"))["run"][0].as_py())

    tally = Tally()

    def check(drawn: tuple[dict[str, object], object]) -> None:
        changes, column = drawn
        text = json.dumps({**header, **changes})
        try:
            pq.write_table(pa.table({"run": [text], "round": [column]}), here / "x.parquet")
        except (pa.ArrowException, OverflowError, UnicodeEncodeError, ValueError):  # no column can hold it
            pq.write_table(pa.table({"run": [text]}), here / "x.parquet")
        tally.judge(*TABLE, "--source", "x.parquet")

    changes = st.dictionaries(st.sampled_from([*header]) | texts, json_values, max_size=3)
    explore(st.tuples(changes, json_values), check, scale(30, 1000), sound=({}, [1]))
    tally.record(record_property, "foreign Parquet files", at_least=0.05)


def written(path: Path) -> Path:
    archive.write(LOGS, path)
    return path


def test_damaged_caches_are_no_error(here: Path, scale: Scale, record_property: Note) -> None:
    write_logs(here / "logs")
    table = judge(*TABLE, "--source", "logs").out
    (path, *_) = sorted((here / "logs" / ".cache").iterdir())
    sound = path.read_bytes()
    for number in range(scale(15, 1000)):
        path.write_bytes(damaged(sound, random.Random(number)))
        assert judge(*TABLE, "--source", "logs").out == table
    record_property("damaged caches of logs", scale(15, 1000))


@pytest.mark.parametrize("name", ["config.yaml", "result.json", "attempts/0001/rounds.jsonl"])
def test_the_dashboard_goes_on_over_damaged_run_directories(
    name: str, tmp_path: Path, scale: Scale, record_property: Note
) -> None:
    write_run(tmp_path, "sound")
    write_run(tmp_path, "hurt", seed=1)
    text = (tmp_path / "hurt" / name).read_text(encoding="utf-8")
    store = Store(tmp_path)
    for number in range(scale(30, 1000)):
        rng = random.Random(number)
        content = damaged_text(text, rng) if number % 2 else damaged(text.encode(), rng)
        (tmp_path / "hurt" / name).write_bytes(content)
        with bounded():
            state = store.look()
        assert set(state.runs) == {"sound", "hurt"}
    record_property(f"damaged {name} below a dashboard", scale(30, 1000))
