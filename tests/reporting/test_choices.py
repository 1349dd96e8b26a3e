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


def held_out_grid() -> Runs:
    """The grid in two seeds on the test set; on held-out data FedAvg is best at 0.01, GradMA at a rate not tested."""
    tested = [
        make_log(name, seed=seed, accuracy=[0.1 * seed + value for value in curve], local_lr=rate, **MNIST)
        for seed in (0, 1)
        for (name, rate), curve in {
            ("fedavg", 0.1): [0.8] * 20,
            ("fedavg", 0.01): [0.5] * 20,
            ("gradma", 0.1): [0.6] * 20,
        }.items()
    ]
    held_out = [
        make_log(name, seed=3, accuracy=curve, local_lr=rate, data__validation_fraction=0.1, **MNIST)
        for (name, rate), curve in {
            ("fedavg", 0.1): LUCKY,
            ("fedavg", 0.01): STEADY,
            ("gradma", 0.1): [0.2] * 20,
            ("gradma", 0.01): STEADY,
        }.items()
    ]
    return to_frames([*tested, *held_out])


def test_settings_chosen_on_held_out_data_are_shown_by_their_runs_on_the_test_set() -> None:
    runs = held_out_grid()
    rates = runs.runs.set_index("run_id")["config.local_lr"]
    for rule, rate in (("validation", 0.1), ("validation_late", 0.01)):
        fedavg, gradma = cells.cell_runs(runs, rule)  # type: ignore[arg-type]
        assert list(fedavg.seeds) == [0, 1]
        assert {rates[run_id] for run_id in fedavg.run_ids} == {rate}
        assert (fedavg.num_settings, gradma.seeds) == (2, {})
    table = choices.rule_table(runs, "aggregation", ["local_lr"])
    rows = {row.label.partition(": ")[2]: [cell.text for cell in row.cells] for row in table.blocks[0]}
    assert rows[choices.RULES["best"]][:2] == ["0.1: 85.0 ± 7.1, 1", "0.1: 65.0 ± 7.1, 1"], "held-out runs do not count"
    assert rows[choices.RULES["validation_late"]][:2] == ["0.01: 55.0 ± 7.1, 1", "missing"]
    assert "seeds 0, 1" in table.notes[0]
    assert "of seeds 3" in table.notes[-1]
    with pytest.raises(UserError, match=r"needs runs with data\.validation_fraction above 0"):
        choices.rule_table(grid(), "aggregation", ["local_lr"], ["validation"])


def test_a_key_with_one_value_on_held_out_data_still_tells_runs_on_the_test_set_apart() -> None:
    tested = [make_log("fedavg", seed=0, level=level, local_lr=rate, **MNIST) for rate, level in ((0.1, 0.5), (1, 0.9))]
    tried = make_log("fedavg", seed=3, local_lr=0.1, data__validation_fraction=0.1, **MNIST)
    runs = to_frames([*tested, tried])
    (cell,) = cells.cell_runs(runs, "validation")
    assert runs.runs.set_index("run_id").loc[cell.run_ids, "config.local_lr"].tolist() == [0.1]


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
    [nearest] = choices.rule_table(grid(), "aggregation", ["local_lr"], ["nearest"]).blocks[0]
    assert [cell.text for cell in nearest.cells[:2]] == ["0.01: 80.0, 1", "0.01: 70.0, 1"], "46.2 and 78.0 are printed"
    with pytest.raises(UserError, match=r"rules=comon.*did you mean 'common'"):
        choices.rule_table(grid(), "aggregation", ["local_lr"], ["comon"])
    with pytest.raises(UserError, match=r"agregation.*did you mean 'aggregation'"):
        choices.setting_table(grid(), "agregation", ["local_lr"])


def test_runs_from_before_an_option_existed_differ_from_later_ones_by_its_value_only() -> None:
    old, default, other = (make_log("fedavg", seed=seed, **MNIST) for seed in (0, 1, 2))
    default.config["evaluation"] = {"each_worker": False}
    assert cells.varying_keys(to_frames([old, default]).runs) == {}
    other.config["evaluation"] = {"each_worker": True}
    assert cells.varying_keys(to_frames([old, other]).runs) == {"evaluation.each_worker": ["False", "True"]}
