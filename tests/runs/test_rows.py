"""`rounds.jsonl` as it is read: while it grows, written anew, damaged."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_platform.runs import metrics
from fl_platform.runs.directory import RunDirectory, rounds_file
from fl_platform.runs.rows import RowReader
from tests.dashboard.made_runs import rows, write_rows


def test_rounds_are_read_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    made = rows(rounds=6)
    write_rows(path, made[:2])
    reader = RowReader()
    assert reader.read(path)
    assert not reader.read(path)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(made[2])[:20])
        file.flush()
        assert not reader.read(path), "half a line is not a round"
        file.write(json.dumps(made[2])[20:] + "\n")
    assert reader.read(path)
    assert reader.table()[metrics.ROUND].to_pylist() == [1, 2, 3]
    assert metrics.COHORT not in reader.table().column_names
    whole = RowReader(lists=True)
    whole.read(path)
    assert whole.table()[metrics.COHORT].to_pylist() == [[1, 2, 3]] * 3
    assert (reader.latest[metrics.ROUND], reader.latest[metrics.COHORT]) == (3, [1, 2, 3])
    write_rows(path, made[:1])
    assert reader.read(path)
    assert reader.table()[metrics.ROUND].to_pylist() == [1]


def test_rows_of_many_shapes(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    lines = [
        '{"round": 1}',
        '{"round": 2, "a": NaN, "b": 1e999}',
        "{broken",
        '["no row"]',
        '{"round": 3, "a": 5, "b": null}',
    ]
    path.write_text("\n".join([*lines, '{"round": 4, "a": true, "huge": 1' + "0" * 400 + "}", ""]), encoding="utf-8")
    reader = RowReader()
    assert reader.read(path)
    table = reader.table().to_pandas()
    assert table["round"].tolist() == [1, 2, 3, 4]
    assert table["a"].isna().tolist() == [True, True, False, True]
    assert reader.damaged == 2
    assert not RowReader().read(None)
    assert RowReader().read(tmp_path / "absent"), "another file is news, whatever is in it"


def line(round: int, salt: float = 0.0) -> str:
    return json.dumps({metrics.ROUND: round, metrics.TEST_ACCURACY: round / 100, metrics.ROUND_SECONDS: salt}) + "\n"


def put(path: Path, text: str, mode: str = "a") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, mode, encoding="utf-8") as file:
        file.write(text)


@settings(max_examples=30)
@given(cuts=st.lists(st.integers(0, 400), max_size=6), again=st.integers(0, 9), salt=st.floats(0, 1))
def test_rows_are_read_as_they_come_and_anew_after_a_resume(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], again: int, salt: float
) -> None:
    """Whatever pieces a file arrives in, and whatever a resumed attempt writes over it."""
    files = RunDirectory(tmp_path_factory.mktemp("rows"), "a1")
    reader = RowReader()
    assert not reader.read(files.newest_rounds())
    path = rounds_file(files.start_attempt())
    text = "".join(line(number) for number in range(1, 6))
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in itertools.pairwise(places):
        put(path, text[start:end])
        reader.read(files.newest_rounds())
        assert len(reader.values(metrics.TEST_ACCURACY)) == text[:end].count("\n")
    assert reader.latest[metrics.ROUND] == 5
    rewritten = [line(number, salt + 2) for number in range(1, 3 + again)]
    put(path, "".join(rewritten), "w")
    reader.read(files.newest_rounds())
    assert len(reader.values(metrics.TEST_ACCURACY)) == len(rewritten)
    put(rounds_file(files.start_attempt()), line(1))
    assert reader.read(files.newest_rounds())
    assert reader.values(metrics.TEST_ACCURACY) == [0.01]
