"""Rounds of many runs stay in a table each, and are joined as one frame of everything would be."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fl_platform.runs.rounds import Rounds

TABLES = {
    "b": pa.table({"round": [1, 2], "x": [0.5, np.nan], "workers": [[1.0], [2.0, 3.0]]}),
    "a": pa.table({"round": [1], "y": [7.0]}),
    "c": pa.table({"round": pa.array([], pa.int64()), "x": pa.array([], pa.float64())}),
}


@pytest.fixture
def rounds() -> Rounds:
    return Rounds.of(TABLES)


def test_the_frame_has_all_columns_of_all_runs(rounds: Rounds) -> None:
    frame = rounds.frame()
    assert list(frame) == ["run_id", "round", "x", "workers", "y"]
    assert frame["run_id"].tolist() == ["b", "b", "a"]
    assert frame["round"].dtype == np.int64
    np.testing.assert_array_equal(frame["x"], [0.5, np.nan, np.nan])
    np.testing.assert_array_equal(frame["y"], [np.nan, np.nan, 7])
    assert len(rounds) == len(frame) == 3


def test_columns_of_some_runs_are_those_of_the_frame(rounds: Rounds) -> None:
    found = rounds.columns(["a", "unknown", "b"], {"round", "y", "z"})
    expected = pd.DataFrame({"run_id": [0, 2, 2], "round": [1, 1, 2], "y": [7, np.nan, np.nan]})
    pd.testing.assert_frame_equal(found, expected)


def test_a_selection_keeps_the_columns_of_those_left_out(rounds: Rounds) -> None:
    only = rounds.only(["a", "unknown"])
    assert only.frame()["run_id"].tolist() == ["a"]
    assert list(only.frame()) == list(rounds.frame())
    assert "x" in only
    assert "z" not in only


def test_a_column_whose_types_disagree_is_text_in_every_selection() -> None:
    rounds = Rounds.of({"a": pa.table({"round": [1], "x": [0.5]}), "b": pa.table({"round": [1], "x": ["high"]})})
    assert rounds.columns(["a"], {"x"})["x"].tolist() == ["0.5"]
    assert rounds.only(["a"]).frame()["x"].tolist() == ["0.5"]


def test_a_further_column(rounds: Rounds) -> None:
    more = rounds.with_column("made", {"b": pa.array([1.0, 2.0])})
    np.testing.assert_array_equal(more.frame()["made"], [1, 2, np.nan])
    assert "made" not in rounds


def test_a_metric_that_is_called_run_id_gives_way() -> None:
    rounds = Rounds.of({"a": pa.table({"round": [1], "run_id": ["other"]})})
    assert rounds.frame().to_dict("list") == {"run_id": ["a"], "round": [1]}


def test_no_runs() -> None:
    assert list(Rounds().frame()) == list(Rounds.of({}).frame()) == ["run_id", "round"]
    assert Rounds().columns([], {"round", "x"}).empty
