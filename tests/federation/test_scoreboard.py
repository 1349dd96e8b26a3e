"""The figures of a run, by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_platform.federation.scoreboard import Scoreboard, class_accuracy, forgetting


def test_class_accuracy_of_counts_and_of_a_class_without_samples():
    per_class = class_accuracy(np.array([3, 0, 0]), np.array([4, 5, 0]))
    assert per_class[:2].tolist() == [0.75, 0.0]
    assert math.isnan(per_class[2])


def test_forgetting_is_the_mean_drop_from_each_class_best():
    assert forgetting(np.array([0.9, 0.5]), np.array([0.6, 0.5])) == pytest.approx(0.15)
    assert forgetting(np.array([0.9, np.nan]), np.array([0.6, np.nan])) == pytest.approx(0.3)


def test_forgetting_over_three_evaluations_by_hand():
    board = Scoreboard(targets=[])
    rows = [
        board.evaluated(round, float(np.mean(accuracies)), np.array(accuracies))
        for round, accuracies in ((1, [0.5, 0.2]), (2, [0.1, 0.8]), (3, [0.4, 0.7]))
    ]
    assert [row["test/forgetting"] for row in rows] == pytest.approx([0.0, 0.2, 0.1])
    assert rows[2]["test/class_accuracy"] == [0.4, 0.7]


def test_targets_are_reached_once_with_what_was_spent_by_then():
    board = Scoreboard(targets=[0.5, 0.9])
    for round, accuracy in ((1, 0.4), (6, 0.5), (11, 0.7)):
        board.total_bytes, board.total_seconds = 100 * round, 2.0 * round
        board.evaluated(round, accuracy, np.array([accuracy]))
    summary = board.summary()
    assert [summary[f"to_target/0.5/{unit}"] for unit in ("rounds", "bytes", "seconds")] == [6, 600, 12.0]
    assert "to_target/0.9/rounds" not in summary
    assert "diverged_round" not in summary


def test_a_board_without_evaluations_has_no_accuracies():
    board = Scoreboard(targets=[0.5])
    board.diverged_round = 1
    summary = board.summary()
    assert summary["test/top_accuracy"] is None
    assert summary["test/final_accuracy"] is None
    assert summary["diverged_round"] == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0.01, 1))
def test_top_final_and_the_first_round_that_reaches_a_target(accuracies, target):
    board = Scoreboard(targets=[target])
    for round, accuracy in enumerate(accuracies, 1):
        board.evaluated(round, accuracy, np.array([accuracy]))
    summary = board.summary()
    assert summary["test/top_accuracy"] == max(accuracies)
    assert summary["test/top_accuracy_round"] == accuracies.index(max(accuracies)) + 1  # the first of equals
    assert summary["test/final_accuracy"] == accuracies[-1]
    reached = [round for round, accuracy in enumerate(accuracies, 1) if accuracy >= target]
    assert summary.get(f"to_target/{target:g}/rounds") == (reached[0] if reached else None)
