"""Many runs are read by several processes, with the records that one alone reads."""

import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fl_platform.runs import cache, parallel
from fl_platform.runs.parallel import helping, read_directories
from fl_platform.runs.reader import read_directory, read_kept
from fl_platform.runs.record import RunRecord


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Seven runs: six that have ended, one of them with a damaged row, and one that has not."""
    for number in range(7):
        path = tmp_path / f"{number:012d}"
        (path / "attempts" / "0001").mkdir(parents=True)
        (path / "config.yaml").write_text(f"seed: {number}\n", encoding="utf-8")
        rows = [json.dumps({"round": t, "test/accuracy": t / 10, "cohort/workers": [t, number]}) for t in (1, 2, 3)]
        text = "\n".join(rows) + ("\nnonsense\n" if number == 2 else "\n")
        (path / "attempts" / "0001" / "rounds.jsonl").write_text(text, encoding="utf-8")
        if number < 6:
            (path / "result.json").write_text('{"status": "finished", "rounds": 3}', encoding="utf-8")
    monkeypatch.setattr(parallel, "BYTES_TO_SHARE", 0)
    return sorted(tmp_path.iterdir())


def kept(runs: list[Path]) -> set[Path]:
    folder = runs[0].parent / cache.NAME
    return {path for path in runs if cache.place_of(path, folder).exists()}


def same(one: RunRecord, other: RunRecord) -> bool:
    return one == other and one.history.equals(other.history)


def test_helpers_leave_their_share_in_the_cache(runs: list[Path]) -> None:
    with helping([runs[:2], runs[2:4]], None):
        pass
    assert kept(runs) == set(runs[:4])


def test_records_are_those_of_one_process(runs: list[Path], tmp_path: Path) -> None:
    alone = [read_directory(path, None, tmp_path / "other") for path in runs]
    together = read_directories(dict.fromkeys(runs), helpers=2)
    assert all(map(same, alone, together))
    assert [record.config["seed"] for record in together] == list(range(7))
    assert [bool(record.warnings) for record in together] == [number == 2 for number in range(7)]
    assert kept(runs) == set(runs[:6])
    assert all(map(same, alone, read_directories(dict.fromkeys(runs), helpers=2)))  # from the cache


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.yaml", "seed: 10"),
        ("run.json", '{"name": "other"}'),
        ("result.json", '{"status": "diverged", "rounds": 2}'),
        ("attempts/0001/rounds.jsonl", '{"round": 1, "test/accuracy": 0.5}\n'),
        ("attempts/0000/rounds.jsonl", '{"round": 1, "test/accuracy": 0.5}\n'),  # of results without a name, the oldest
    ],
)
def test_every_file_of_a_run_is_part_of_its_key(runs: list[Path], name: str, text: str) -> None:
    before = read_directory(runs[0])
    (runs[0] / name).parent.mkdir(exist_ok=True)
    (runs[0] / name).write_text(text, encoding="utf-8")
    assert not same(read_directory(runs[0]), before)
    assert same(read_directory(runs[0]), read_directory(runs[0], None, runs[0].parent / "other"))


def test_a_run_that_changed_is_read_again(runs: list[Path]) -> None:
    read_directories(dict.fromkeys(runs), helpers=1)
    (runs[1] / "result.json").write_text('{"status": "diverged", "rounds": 2}', encoding="utf-8")
    damaged = cache.place_of(runs[0], runs[0].parent / cache.NAME)
    damaged.write_bytes(damaged.read_bytes()[:-40])
    first, second, *_ = read_directories(dict.fromkeys(runs), helpers=1)
    assert second.status == "diverged"
    assert first.history.num_rows == 3


def test_a_kept_run_is_found_however_its_path_is_spelled(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_directories(dict.fromkeys(runs), helpers=0)
    monkeypatch.chdir(runs[0].parent)
    spelled = [Path(path.name) for path in runs]
    found = [read_kept(path) for path in spelled]
    assert [record and record.source for record in found] == [str(path) for path in spelled[:2]] + [None] + [
        str(path) for path in spelled[3:6]
    ] + [None], "a warning names the path as it was spelled, and the last has not ended"
    for record, before in zip(read_directories(dict.fromkeys(spelled), helpers=0), whole, strict=True):
        assert record.history.equals(before.history)
        assert all(text.startswith(record.source) for text in record.warnings)


def test_runs_that_changed_are_shared_as_well(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    read_directories(dict.fromkeys(runs), helpers=0)
    for path in runs[:6]:
        os.utime(path / "config.yaml", ns=(1, 1))
    shares: list[list[Path]] = []
    monkeypatch.setattr(parallel, "helping", lambda given, _: contextlib.nullcontext(shares.extend(given)))
    assert len(read_directories(dict.fromkeys(runs), helpers=1)) == 7
    assert shares == [[runs[1], runs[3], runs[5]]]


def test_a_kept_file_that_cannot_be_mapped_is_read(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_directory(runs[0])

    def refuse(_: str) -> None:
        raise OSError(errno.ENOMEM, "no more maps")

    monkeypatch.setattr(cache.pa, "memory_map", refuse)
    found = read_kept(runs[0])
    assert found is not None
    assert same(found, before)


def test_helpers_that_cannot_start_cost_time_only(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert [record.config["seed"] for record in read_directories(dict.fromkeys(runs), helpers=2)] == list(range(7))


def test_none_is_started_for_few_rows_or_where_nothing_can_be_kept(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: started.append(1))
    monkeypatch.setattr(parallel, "is_writable", lambda folder: False)
    assert len(read_directories(dict.fromkeys(runs), helpers=2)) == 7
    monkeypatch.undo()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: started.append(1))
    assert len(read_directories(dict.fromkeys(runs), helpers=2)) == 7  # less than BYTES_TO_SHARE
    assert started == []


def test_an_error_ends_the_helpers(runs: list[Path]) -> None:
    with pytest.raises(KeyError), helping([runs], None):
        raise KeyError
