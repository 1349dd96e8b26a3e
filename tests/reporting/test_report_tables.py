"""Tables from runs whose numbers are known."""

import json

import numpy as np
import pandas as pd
import pytest

from fl_platform.errors import UserError
from fl_platform.reporting import cells, comparison, measures, pivot, tables
from fl_platform.reporting.layout import Table
from fl_platform.runs import frames as runs
from fl_platform.runs import metrics
from fl_platform.runs.record import RunRecord, merge
from fl_platform.runs.writing import bytes_text
from tests.synthetic_logs import make_log


def frames(*logs: RunRecord) -> runs.Runs:
    return runs.to_frames(merge(logs))


def flat(algorithm: str, top: float, seed: int = 0, **options: object) -> RunRecord:
    """A run that reaches ``top`` in its second of three rounds."""
    return make_log(algorithm, seed, accuracy=[0.0, top, top / 2], **options)


def texts(table: Table) -> dict[str, list[str]]:
    return {row.label: [cell.text for cell in row.cells] for block in table.blocks for row in block}


def bold(table: Table) -> dict[str, list[bool]]:
    return {row.label: [cell.is_bold for cell in row.cells] for block in table.blocks for row in block}


def test_mean_and_both_spreads_over_seeds() -> None:
    loaded = frames(flat("fedavg", 0.90, 0), flat("fedavg", 0.92, 1), flat("fedavg", 0.97, 2))
    values = np.array([90.0, 92.0, 97.0])
    sample, population = values.std(ddof=1), values.std(ddof=0)
    table = tables.statistic_table(loaded)
    assert texts(table) == {"FedAvg": [f"93.00±{sample:.2f}"]}
    assert texts(tables.statistic_table(loaded, ddof=0)) == {"FedAvg": [f"93.00±{population:.2f}"]}
    assert "ddof=1" in table.notes[0]
    row = table.numbers.iloc[0]
    assert (row["n"], row["mean"], row["std_ddof0"], row["std_ddof1"]) == pytest.approx((3, 93.0, population, sample))
    assert json.loads(row["by_seed"]) == pytest.approx({"0": 90.0, "1": 92.0, "2": 97.0})


def test_missing_few_diverged_and_crashed() -> None:
    everyone = [flat("fedavg", 0.9, seed) for seed in range(3)]
    elsewhere = [flat("fedavg", 0.8, seed, omega=0.01) for seed in range(3)]
    partly = [flat("moon", 0.9, 0), flat("moon", 0.9, 1), flat("moon", 0.9, 2, status="diverged")]
    never = [flat("feddyn", 0.9, seed, status="diverged") for seed in range(3)]
    gone = [
        flat("mifa", 0.9, 0, status="crashed", run_id="gone"),
        flat("mifa", 0.9, 1, status="running", run_id="going"),
    ]
    table = tables.statistic_table(frames(*everyone, *elsewhere, *partly, *never, *gone))
    assert texts(table) == {
        "FedAvg": ["90.00±0.00", "80.00±0.00"],
        "MOON": ["90.00±0.00 (n=2, diverged 1/3)", "missing"],
        "FedDyn": ["diverged 3/3", "missing"],
    }
    assert "Not averaged: 1 crashed (gone)." in map(str, table.notes)
    assert "Not averaged: 1 running (going)." in map(str, table.notes)


def test_a_note_names_a_few_runs_and_counts_the_rest() -> None:
    stopped = [flat("moon", 0.9, seed, status="interrupted", run_id=f"run{seed}") for seed in range(7)]
    table = tables.statistic_table(frames(flat("fedavg", 0.9), *stopped))
    assert "Not averaged: 7 interrupted (run0, run1, run2, run3, run4 and 2 more)." in map(str, table.notes)


def test_one_seed_has_no_spread() -> None:
    assert texts(tables.statistic_table(frames(flat("fedavg", 0.9)))) == {"FedAvg": ["90.00 (n=1)"]}


def test_best_of_each_group_is_bold_and_ties_share_it() -> None:
    tops = {"fedavg": 0.90001, "fedprox": 0.90002, "moon": 0.8, "fedavgm": 0.5, "mifa": 0.6, "gradma": 0.1}
    lost = flat("feddyn", 0.9, status="diverged")
    table = tables.statistic_table(frames(*(flat(name, top) for name, top in tops.items()), lost), seeds=1)
    assert bold(table) == {
        "FedAvg": [True],
        "FedProx": [True],
        "MOON": [False],
        "FedAvgM": [False],
        "MIFA": [True],
        "FedDyn": [False],
        "GradMA": [False],  # the only one of its group with a result
    }


def test_complete_layout_has_all_of_the_paper() -> None:
    table = tables.statistic_table(frames(flat("gradma_w", 0.9)), complete=True)
    found = texts(table)
    assert len(found) == 16
    assert all(len(row) == 14 for row in found.values())
    assert found["GradMA-W"] == ["missing", "90.00 (n=1)", *["missing"] * 12]
    rounds = tables.target_table(frames(flat("gradma_w", 0.96)), complete=True)
    assert [text for text, _ in rounds.header[2]][:3] == ["ac=95%", "ac=95%", "ac=45%"]


def test_settings_are_never_averaged_silently() -> None:
    logs = [flat("fedavg", 0.5, seed, local_lr=0.1) for seed in range(3)] + [flat("fedavg", 0.9, 0, local_lr=0.01)]
    loaded = frames(*logs, flat("fedavg", 0.7, 0, local_lr=1.0), flat("fedavg", 0.8, 1, local_lr=1.0))
    with pytest.raises(UserError, match=r"fedavg .*local_lr is 0\.01 or 0\.1 or 1\.0.*set select to best"):
        tables.statistic_table(loaded)
    table = tables.statistic_table(loaded, select="best")
    assert texts(table) == {"FedAvg": ["50.00±0.00"]}  # the settings with the most seeds come first
    assert any("up to 3 settings" in note for note in table.notes)


def test_keys_that_only_say_how_a_run_is_carried_out_do_not_split_cells() -> None:
    loaded = frames(flat("fedavg", 0.9, 0, threads=1, run__id="a"), flat("fedavg", 0.9, 1, threads=2, run__id="b"))
    assert texts(tables.statistic_table(loaded, seeds=2)) == {"FedAvg": ["90.00±0.00"]}


def test_keys_that_only_some_runs_have() -> None:
    logs = [flat("fedprox", 0.9, seed, algorithm__mu=0.01, model__width=None, scenario="x") for seed in range(2)]
    loaded = frames(*logs, flat("fedavg", 0.8, 0), flat("fedavg", 0.8, 1, model__name="mlp"))
    table = pivot.pivot_table(loaded, ["algorithm.mu"], ["model.name"], "top_accuracy")
    assert texts(table) == {"0.01": ["missing", "90.00±0.00 (n=2)"], "none": ["80.00 (n=1)", "80.00 (n=1)"]}
    with pytest.raises(UserError, match=r"model\.name is mlp or nan"):
        tables.statistic_table(loaded)


def test_table2_reads_the_mean_curve_and_each_seed() -> None:
    one = make_log("scaffold", 0, accuracy=[0.1, 0.96, 0.2, 0.96])
    two = make_log("scaffold", 1, accuracy=[0.1, 0.2, 0.96, 0.94])
    three = make_log("fedprox", 0, accuracy=[0.1, 0.2, 0.3, 0.4])
    loaded = frames(one, two, three)
    table = tables.target_table(loaded, seeds=2)
    assert texts(table) == {"FedProx": ["-- (n=1)"], "Scaffold (2\u00d7)": ["4"]}  # 0.95 counts as reached
    assert bold(table)["Scaffold (2\u00d7)"] == [True]
    assert table.header[-1] == (("ac=95%", 1),)
    assert texts(tables.target_table(loaded, "rounds_by_seed", seeds=2))["Scaffold (2\u00d7)"] == ["2, 3"]
    assert texts(tables.target_table(loaded, "bytes", seeds=2))["Scaffold (2\u00d7)"] == ["4.00 MB"]
    assert texts(tables.target_table(loaded, "seconds", seeds=2))["Scaffold (2\u00d7)"] == ["2.0"]
    assert texts(tables.target_table(loaded, target=0.3, seeds=1))["FedProx"] == ["3"]


def test_mean_of_maxima_may_reach_what_the_mean_curve_does_not() -> None:
    loaded = frames(make_log(seed=0, accuracy=[0.97, 0.1]), make_log(seed=1, accuracy=[0.1, 0.97]))
    assert texts(tables.statistic_table(loaded, seeds=2)) == {"FedAvg": ["97.00±0.00"]}
    assert texts(tables.target_table(loaded, seeds=2)) == {"FedAvg": ["--"]}


def test_evaluations_every_few_rounds() -> None:
    accuracy = [0.1, np.nan, np.nan, 0.95, np.nan]
    loaded = frames(*(make_log(seed=seed, accuracy=accuracy, evaluation__every=3) for seed in (0, 1)))
    table = tables.target_table(loaded, seeds=2)
    assert texts(table) == {"FedAvg": ["4"]}
    assert "Evaluated every 3 rounds: the first evaluation that reaches the target counts." in table.notes
    every_round = tables.target_table(frames(make_log(accuracy=[0.1, 0.95], evaluation__every=1)))
    assert not any("Evaluated every" in str(note) for note in every_round.notes)
    values = measures.per_run(loaded).iloc[0]
    assert (values["top_accuracy"], values["final_accuracy"], values["rounds"]) == (0.95, 0.95, 5)
    assert values["area"] == pytest.approx((0.1 + 0.95) / 2)


def test_area_is_the_trapezoid_rule() -> None:
    curve = np.array([0.1, 0.5, 0.4, 0.8])
    value = measures.per_run(frames(make_log(accuracy=curve)))["area"].iloc[0]
    assert value == pytest.approx(np.trapezoid(curve) / 3)
    assert measures.per_run(frames(make_log(accuracy=[0.3])))["area"].iloc[0] == pytest.approx(0.3)


def test_targets_of_other_scenarios_come_from_the_runs() -> None:
    log = make_log(data="digits", accuracy=[0.1, 0.85, 0.95], evaluation__targets=[0.8, 0.9])
    assert texts(tables.target_table(frames(log), seeds=1)) == {"FedAvg": ["3"]}
    with pytest.raises(UserError, match="no target accuracy is known"):
        tables.target_table(frames(make_log(data="digits")))


def test_beside_table1() -> None:
    # Table 1, MNIST (0.1, 10): FedAvg 97.11±0.39, MOON 97.11±0.31, GradMA 97.34±0.35
    loaded = frames(flat("fedavg", 0.9750), flat("moon", 0.90), flat("gradma", 0.9850))
    table = comparison.beside_table1(loaded, seeds=1)
    assert texts(table)["MNIST, ω=0.1, S=10: FedAvg"] == ["97.50", "97.11±0.39", "+0.39", "yes"]
    assert texts(table)["MNIST, ω=0.1, S=10: MOON"] == ["90.00", "97.11±0.31", "-7.11", "no"]
    assert texts(table)["MNIST, ω=0.1, S=10: Spearman rank correlation"][:2] == ["rho=0.87", "3 algorithms"]
    with pytest.raises(UserError, match="cell of the paper's tables"):
        comparison.beside_table1(frames(flat("fedavg", 0.9, data="digits")))


def test_beside_table2_and_cifar100_under_either_omega() -> None:
    # Table 2, CIFAR-100, S=5, 30 %: FedAvg 437, Scaffold 806, GradMA 274
    accuracy = np.linspace(0.01, 0.6, 500)
    logs = [
        make_log(name, accuracy=accuracy, data="cifar100", omega=omega, cohort_size=5)
        for omega in (0.1, 1.0)
        for name in ("fedavg", "gradma")
    ]
    table = comparison.beside_table2(frames(*logs), seeds=1)
    reached = int(np.argmax(accuracy >= 0.3)) + 1
    for omega in ("0.1", "1.0"):
        assert texts(table)[f"CIFAR-100, ω={omega}, S=5: FedAvg"] == [str(reached), "437", f"{reached - 437:+d}"]
    assert any("Table 1 and ω=1.0 in Table 2" in note for note in table.notes)


def test_significance_is_paired_by_seed() -> None:
    logs = [flat("fedavg", 0.5 + seed / 10, seed) for seed in range(3)]
    logs += [flat("gradma", 0.5 + seed / 10 + 0.02, seed) for seed in (0, 1, 2, 7)]
    table = comparison.significance_table(frames(*logs), reference="FedAvg")
    assert texts(table) == {"GradMA": ["+2.00 [+2.00, +2.00] (n=3)"]}
    with pytest.raises(UserError, match="reference=moon"):
        comparison.significance_table(frames(*logs), reference="moon")


def test_pivot_states_n_and_what_it_averages_over() -> None:
    logs = [
        flat("gradma_s", top, seed, algorithm__memory_size=size)
        for seed, size, top in ((0, 0, 0.5), (1, 0, 0.7), (0, 10, 0.8))
    ]
    table = pivot.pivot_table(frames(*logs), ["algorithm.memory_size"], ["algorithm.name"], "top_accuracy")
    assert texts(table) == {"0": [f"60.00±{np.std([50, 70], ddof=1):.2f} (n=2)"], "10": ["80.00 (n=1)"]}
    assert table.header == ((("algorithm.name=GradMA-S", 1),),)
    over = pivot.pivot_table(frames(*logs), ["algorithm.name"], [], metrics.TOP_ACCURACY)
    assert texts(over)["GradMA-S"][0].startswith("66.67±")
    assert "Cells average over algorithm.memory_size." in over.notes
    assert not any("average over" in note for note in table.notes)
    assert (
        pivot.pivot_table(frames(make_log(status="crashed")), ["seed"], ["seed"], "area").notes[0] == "No finished run."
    )
    with pytest.raises(UserError, match="did you mean 'top_accuracy'"):
        pivot.pivot_table(frames(*logs), ["algorithm.name"], [], "top_acuracy")
    with pytest.raises(UserError, match="did you mean 'cohort_size'"):
        pivot.pivot_table(frames(*logs), ["cohortsize"], [], "top_accuracy")


def test_pivot_counts_runs_that_did_not_reach_a_target() -> None:
    key = metrics.to_target(0.9, "bytes")
    logs = [flat("fedavg", 0.5, seed, compression__name=name) for name in ("none", "topk") for seed in (0, 1)]
    for log, spent in zip(logs, (4000, 6000, 1500, None), strict=True):
        log.summary.update({} if spent is None else {key: spent})
    table = pivot.pivot_table(frames(*logs), ["compression.name"], [], key)
    assert table.title == "Bytes to reach 0.9"
    assert texts(table) == {"none": ["5000±1414 (n=2)"], "topk": ["1500 (n=1, not reached 1/2)"]}


def test_whole_numbers_that_only_some_runs_have_stay_whole() -> None:
    """Not 10.0, which pandas makes of 10 beside a run without that key; a rate of 1.0 is not one of them."""
    logs = [flat("fedavg", 0.5), flat("gradma_s", 0.8, algorithm__memory_size=10, algorithm__memory_decay=1.0)]
    table = pivot.pivot_table(frames(*logs), ["algorithm.memory_decay"], ["algorithm.memory_size"], "top_accuracy")
    assert table.header == ((("algorithm.memory_size=10", 1), ("algorithm.memory_size=none", 1)),)
    assert list(texts(table)) == ["1.0", "none"]


def test_foreign_runs_are_named() -> None:
    log = flat("fedavg", 0.9, run_id="foreign")
    del log.config["seed"]
    with pytest.raises(UserError, match="run foreign has no seed"):
        tables.statistic_table(frames(log, flat("fedavg", 0.9, 1)))
    assert tables.statistic_table(frames()).notes[0] == "No finished run."


def test_no_finished_run_is_said() -> None:
    table = tables.statistic_table(frames(flat("fedavg", 0.9, status="crashed", run_id="r")))
    assert table.notes[0] == "No finished run."
    assert table.blocks == ()
    assert isinstance(table.numbers, pd.DataFrame)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1.5e9, "1.50 GB"), (2e15, "2000.00 TB")]
)
def test_bytes_text(count: float, text: str) -> None:
    assert bytes_text(count) == text


def test_runs_from_before_an_option_existed_stand_beside_those_with_its_default() -> None:
    later = {"local_momentum": 0.0, "work__name": "fixed", "local_clip": None, "evaluation__metrics": []}
    logs = [flat("fedavg", 0.5, 0), flat("fedavg", 0.5, 1, **later)]
    [cell] = cells.cell_runs(frames(*logs))
    assert set(cell.seeds) == {0, 1}
    with pytest.raises(UserError, match=r"local_momentum is 0\.0 or 0\.9"):
        cells.cell_runs(frames(*logs, flat("fedavg", 0.5, 2, **(later | {"local_momentum": 0.9}))))
