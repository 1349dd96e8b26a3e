"""Attempts, results and files that are whole or absent."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_platform.errors import UserError
from fl_platform.federation.checkpoints import AtomicCheckpointIO
from fl_platform.runs.directory import RunDirectory, check_writable, json_text
from fl_platform.runs.liveness import at_work, recorded_end
from fl_platform.runs.reader import read_directory
from fl_platform.runs.record import RunRecord
from fl_platform.runs.status import RunStatus
from fl_platform.runs.writing import write_atomically

DONE = {"status": "finished", "test/top_accuracy": 0.5}


@pytest.fixture
def files(tmp_path):
    return RunDirectory(tmp_path, "abc")


def test_attempts_are_numbered(files):
    assert [files.start_attempt().name for _ in range(3)] == ["0001", "0002", "0003"]
    assert RunDirectory(files.output, "other").start_attempt().name == "0001"


def test_attempts_started_at_once_are_distinct(files):
    with ThreadPoolExecutor(8) as pool:
        started = list(pool.map(lambda _: files.start_attempt(), range(40)))
    assert len(set(started)) == 40


def test_the_old_result_stays_until_the_new_one_is_complete(files):
    first = files.start_attempt()
    assert files.result() is None
    files.complete(first, DONE)
    second = files.start_attempt()
    assert files.result() == DONE
    assert first.is_dir()
    files.complete(second, {**DONE, "test/top_accuracy": 0.6})
    assert files.result()["test/top_accuracy"] == 0.6
    assert not first.exists()
    assert second.is_dir()


def test_completing_an_older_attempt_leaves_newer_ones(files):
    first, second = files.start_attempt(), files.start_attempt()
    files.complete(first, DONE)
    assert first.is_dir()
    assert second.is_dir()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"3", b"\xff", b"{}"])
def test_a_damaged_result_is_no_result(files, content):
    files.path.mkdir(parents=True)
    files.result_file.write_bytes(content)
    assert files.result() is None


def test_the_newest_checkpoint_is_that_of_the_newest_attempt_that_has_one(files):
    assert files.newest_checkpoint() is None
    first, second, _ = (files.start_attempt() for _ in range(3))
    AtomicCheckpointIO().save_checkpoint({"epoch": 30}, first / "checkpoints")
    AtomicCheckpointIO().save_checkpoint({"epoch": 4}, second / "checkpoints")
    found = files.newest_checkpoint()
    assert found.parent.parent == second
    assert found.name.startswith("round-000005-")


def test_a_description_is_the_configuration_as_yaml_and_the_rest_beside_it(files):
    config = {"seed": 3, "data": {"name": "digits"}, "run": {"id": "abc", "commit": None}}
    files.write_description(RunRecord("", "abc", name="n", tags=("a", "b"), started=2.5, config=config))
    assert (files.path / "config.yaml").read_text() == "seed: 3\ndata:\n  name: digits\n"
    found = files.description()
    assert (found["name"], found["tags"], found["started"], found["sweep"]) == ("n", ("a", "b"), 2.5, "")
    assert found["run"] == {"id": "abc", "commit": None}


@pytest.mark.parametrize("content", ["", "[1]", '{"tags": 3, "started": "x", "name": 4, "run": []}'])
def test_a_damaged_description_is_left_out(files, content):
    files.path.mkdir(parents=True)
    files.description_file.write_text(content)
    assert files.description() == {}


def test_an_attempt_ends_with_a_result_or_a_note(files):
    attempt = files.start_attempt()
    with pytest.raises(UserError, match="refused"), at_work(attempt):
        raise UserError("refused in its first round")
    assert recorded_end(attempt) is RunStatus.CRASHED
    with at_work(attempt):
        files.end_attempt(attempt, {"status": "interrupted"})
    assert (files.result(), recorded_end(attempt)) == (None, RunStatus.INTERRUPTED)

    def fail_at_work() -> None:
        with at_work(attempt):
            assert recorded_end(attempt) is None
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at_work()
    assert recorded_end(attempt) is RunStatus.CRASHED
    with at_work(attempt):
        files.end_attempt(attempt, {"status": "interrupted"})
    with pytest.raises(UserError, match="refused"), at_work(attempt):
        raise UserError("refused before it began")
    assert recorded_end(attempt) is RunStatus.INTERRUPTED
    with at_work(attempt):
        files.end_attempt(attempt, DONE)
    assert (files.result(), recorded_end(attempt)) == (DONE, None)


def strict(text):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@settings(max_examples=50)
@given(st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=8))
def test_json_is_strict_and_loses_only_what_is_not_finite(value):
    def expected(value):
        if isinstance(value, list):
            return [expected(item) for item in value]
        if isinstance(value, dict):
            return {name: expected(item) for name, item in value.items()}
        return None if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value

    assert strict(json_text(value)) == expected(value)


def test_writing_is_atomic_and_leaves_nothing_behind(tmp_path):
    target = tmp_path / "deep" / "file.txt"
    write_atomically(target, "one")
    write_atomically(target, "two")
    assert target.read_text() == "two"
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "\ud800")
    assert target.read_text() == "two"
    assert os.listdir(target.parent) == ["file.txt"]


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    check_writable(tmp_path / "new" / "place", "output.dir=x")
    assert (tmp_path / "new" / "place").is_dir()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match=f"^output.dir={place} cannot be written: "):
            check_writable(place, f"output.dir={place}")


def test_a_result_with_a_flipped_bit_is_named_and_counts_as_none(files, capsys):
    files.complete(files.start_attempt(), DONE)
    content = files.result_file.read_bytes()
    for bit in range(0, len(content) * 8, 3):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        files.result_file.write_bytes(bytes(damaged))
        found = files.result()
        message = capsys.readouterr().err
        is_kept = found is not None and found.items() >= DONE.items()  # a bit of white space, or of the checksum's name
        assert is_kept or (found is None and f"{files.result_file} is damaged" in message)


@pytest.mark.parametrize("name", ["config.yaml", "attempts/0001/rounds.jsonl"])
def test_a_digit_that_is_not_as_the_run_wrote_it_is_told(files, name):
    attempt = files.start_attempt()
    files.write_description(RunRecord("", "abc", config={"seed": 3}))
    (attempt / "rounds.jsonl").write_text('{"round": 1, "test/accuracy": 0.63}\n')
    files.complete(attempt, DONE)
    assert read_directory(files.path).warnings == ()
    path = files.path / name
    path.write_text(path.read_text().replace("3", "7"))
    [warning] = read_directory(files.path).warnings
    assert warning == f"{files.path}: {path.name} is not as the run wrote it: it is damaged or was edited"


def test_a_result_without_checksum_is_read_unless_its_values_have_other_types(files):
    files.path.mkdir(parents=True)
    files.result_file.write_text(json.dumps(DONE))
    assert files.result() == DONE
    files.result_file.write_text(json.dumps({**DONE, "test/top_accuracy": "0.5"}))
    assert files.result() is None


def test_an_attempt_that_another_process_works_on_is_neither_removed_nor_joined(files):
    first, second = files.start_attempt(), files.start_attempt()
    for attempt in (first, second):
        (attempt / "rounds.jsonl").write_text('{"round": 1}\n')
    with at_work(first):
        with pytest.raises(UserError, match="is being written by process"):
            files.start_attempt()
        files.complete(second, DONE)
        assert first.is_dir()
    assert files.counted_rounds(has_result=True).parent == second
    files.complete(second, DONE)
    assert not first.exists()


def test_other_names_among_the_attempts_are_passed_over(files):
    for name in ("1\u00b2", "\u0663", "x", "12345678901234567890"):
        (files.attempts / name).mkdir(parents=True)
    assert files.newest_attempt() is None
    assert files.start_attempt().name == "0001"
