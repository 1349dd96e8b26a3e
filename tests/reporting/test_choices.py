"""Rules of choice among settings, and settings beside the paper's column."""

import math
from typing import Any

import pytest

from fl_platform.errors import UserError
from fl_platform.reporting import cells, choices
from fl_platform.reporting.selection import Selection
from fl_platform.runs.frames import Runs, to_frames
from tests.synthetic_logs import make_log

MNIST: dict[str, Any] = {"omega": 0.01, "aggregation": "uniform"}
LUCKY = [0.5] * 10 + [0.9] + [0.4] * 9  # a high top, a low end
STEADY = [0.5] * 10 + [0.8] * 10


def grid() -> Runs:
    """FedAvg is best at 0.1 by its top and at 0.01 in the end; GradMA is good at 0.01 only."""
    curves = {
        ("fedavg", 0.1): LUCKY,
        ("fedavg", 0.01): STEADY,
        ("gradma", 0.1): [0.1] * 20,
        ("gradma", 0.01): [0.7] * 20,
    }
    return to_frames([make_log(name, accuracy=curve, local_lr=rate, **MNIST) for (name, rate), curve in curves.items()])


@pytest.mark.parametrize(
    ("select", "rates"),
    [("best", [0.1, 0.01]), ("best_late", [0.01, 0.01]), ("common", [0.01, 0.01]), ("common_late", [0.01, 0.01])],
)
def test_rules_of_choice(select: Selection, rates: list[float]) -> None:
    runs = grid()
    found = cells.cell_runs(runs, select)
    assert [cell.method.name for cell in found] == ["fedavg", "gradma"]
    by_id = runs.runs.set_index("run_id")["config.local_lr"]
    assert [by_id[cell.run_ids[0]] for cell in found] == rates
    assert [cell.num_settings for cell in found] == [2, 2]


def test_methods_without_a_common_setting_are_named() -> None:
    runs = to_frames([make_log("fedavg", local_lr=0.1, **MNIST), make_log("gradma", local_lr=0.01, **MNIST)])
    with pytest.raises(UserError, match="is common to fedavg, gradma"):
        cells.cell_runs(runs, "common")


def test_distances_to_both_tables_of_the_paper() -> None:
    """FedAvg is printed with 46.17 and 493 rounds, GradMA with what the package data say."""
    table = choices.setting_table(grid(), "aggregation", ["local_lr"])
    [block] = table.blocks
    assert [row.label for row in block] == ["uniform: 0.01", "uniform: 0.1"]
    numbers = table.numbers.set_index(["line", "algorithm"])
    fedavg = numbers.loc[("uniform: 0.1", "fedavg")]
    assert fedavg["accuracy_distance"] == pytest.approx(abs(90 - fedavg["paper_accuracy"]))
    assert (fedavg["rounds"], fedavg["rounds_distance"]) == (1, pytest.approx(math.log2(493)))
    assert block[1].cells[1].text == "10.0, --"  # GradMA at 0.1 never reaches the target


def test_a_rule_is_a_row_of_every_group_and_unknown_ones_are_refused() -> None:
    table = choices.rule_table(grid(), "aggregation", ["local_lr"], ["common", "best"])
    assert [row.label for block in table.blocks for row in block] == [
        "uniform: best of each method, top accuracy",
        "uniform: one for all methods, top accuracy",
    ]
    assert table.blocks[0][0].cells[0].text == "0.1: 90.0, 1"
    with pytest.raises(UserError, match=r"rules=comon.*did you mean 'common'"):
        choices.rule_table(grid(), "aggregation", ["local_lr"], ["comon"])
    with pytest.raises(UserError, match=r"agregation.*did you mean 'aggregation'"):
        choices.setting_table(grid(), "agregation", ["local_lr"])
