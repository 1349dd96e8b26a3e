"""``sweep best``: the best point per algorithm and scenario, how it was picked, and that ``chosen=`` reads it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from small_sweeps import QUICK, entries_of, launch_here, quick_sweep

from fl_platform.config.compose import compose
from fl_platform.errors import UserError
from fl_platform.runs import metrics
from fl_platform.runs.reader import read_directory
from fl_platform.sweeps.best import choose, write_chosen
from fl_platform.sweeps.check import check_chosen
from fl_platform.sweeps.definition import Sweep
from fl_platform.sweeps.ledger import Ledger

POINTS = [
    "algorithm.name=fedavg local_lr=0.1",
    "algorithm.name=fedavg local_lr=0.0001",
    "algorithm.name=fedprox algorithm.mu=0.5 local_lr=0.1",
    "algorithm.name=fedprox algorithm.mu=0.1 local_lr=0.0001",
    "algorithm.name=fedavg local_lr=0.1 server_lr=1e30",
]
SMALL = ("data.name=digits", "evaluation.targets=[0.9]", "num_rounds=5")


def tuned(directory: Path, *args: str) -> Sweep:
    """Five points, one of which diverges, in one scenario with two seeds."""
    parameters: dict[str, Any] = {
        "point": {"values": POINTS},
        "seed": {"values": [0, 1]},
        "scenario": {"value": "mnist_w1_s10"},
    }
    return quick_sweep(directory, parameters, *SMALL, *args)


def chosen_of(
    sweep: Sweep, by: str = metrics.TOP_ACCURACY, select_on: str | None = None, last: int | None = None
) -> dict[str, Any]:
    with Ledger(sweep.directory) as ledger:
        return choose(sweep, sweep.directory, ledger, by, select_on, last=last)


def test_a_scenario_that_was_not_tuned_takes_the_choice_of_another(tmp_path: Path) -> None:
    sweep = tuned(tmp_path)
    launch_here(sweep)

    def choose_with(**reuse: str) -> dict[str, Any]:
        with Ledger(sweep.directory) as ledger:
            return choose(sweep, sweep.directory, ledger, metrics.TOP_ACCURACY, reuse=reuse)

    content = choose_with(**{"mnist_w0.01_s5": "mnist_w1_s10"})
    write_chosen(tmp_path / "chosen.yaml", content)
    args = ["algorithm.name=fedprox", f"chosen={tmp_path / 'chosen.yaml'}"]
    own, taken = (compose([*args, f"scenario={name}"]) for name in ("mnist_w1_s10", "mnist_w0.01_s5"))
    assert (taken.local_lr, taken.algorithm["mu"]) == (own.local_lr, own.algorithm["mu"]) == (0.1, 0.5)
    assert taken.cohort_size == 5
    with pytest.raises(UserError, match=r"no finished trial in mnist_w0\.1_s10; it has mnist_w1_s10"):
        choose_with(**{"mnist_w0.01_s5": "mnist_w0.1_s10"})
    with pytest.raises(UserError, match="the sweep tuned mnist_w1_s10 itself"):
        choose_with(mnist_w1_s10="mnist_w1_s10")
    with pytest.raises(UserError, match=r"did you mean .mnist_w0\.01_s5."):
        choose_with(**{"mnist_w0.01_s6": "mnist_w1_s10"})


def test_the_best_mean_over_seeds_is_chosen_and_read_back(tmp_path: Path) -> None:
    sweep = tuned(tmp_path)
    assert launch_here(sweep).counts["diverged"] == 2
    content = chosen_of(sweep)
    found = content["chosen"]["mnist_w1_s10"]
    means = dict.fromkeys(POINTS, 0.0)
    for entry in entries_of(sweep):
        if entry.state == "finished":
            means[entry.params["point"]] += entry.summary[metrics.TOP_ACCURACY] / 2
    for name in ("fedavg", "fedprox"):
        best = max((point for point in POINTS if f"name={name} " in point), key=lambda point: means[point])
        assert "local_lr=0.1" in best.split()
        assert found[name]["value"] == pytest.approx(means[best])
    assert found["fedavg"]["keys"] == {"local_lr": 0.1}
    assert found["fedprox"]["keys"] == {"local_lr": 0.1, "algorithm": {"mu": 0.5}}
    assert (found["fedavg"]["points_tried"], found["fedavg"]["diverged"], found["fedavg"]["seeds"]) == (2, 2, [0, 1])
    told = content["provenance"]
    assert (told["sweep"], told["split"], told["seeds"], told["rounds"]) == (sweep.identifier, "test", [0, 1], [5])
    assert (told["by"], told["goal"], told["finished_trials"]) == (metrics.TOP_ACCURACY, "maximize", 8)

    write_chosen(tmp_path / "chosen.yaml", content)
    assert yaml.safe_load((tmp_path / "chosen.yaml").read_text(encoding="utf-8")) == content
    args = [f"chosen={tmp_path / 'chosen.yaml'}", "scenario=mnist_w1_s10", "algorithm.name=fedprox"]
    config = compose([*QUICK, *args])
    assert (config.local_lr, config.algorithm["mu"]) == (0.1, 0.5)
    assert compose([*QUICK, *args, "local_lr=0.3"]).local_lr == 0.3


def test_rounds_between_evaluations_do_not_count_among_the_last(tmp_path: Path) -> None:
    sweep = quick_sweep(tmp_path, {"seed": {"value": 0}}, "num_rounds=8", "evaluation.every=3")
    launch_here(sweep)
    entry = chosen_of(sweep, metrics.TEST_ACCURACY, last=4)["chosen"]["none"]["fedavg"]
    history = read_directory(sweep.output / entry["run"]).history
    rows = dict(zip(history[metrics.ROUND].to_pylist(), history[metrics.TEST_ACCURACY].to_pylist(), strict=True))
    evaluated = [value for round, value in rows.items() if round > 4 and value == value]
    assert 1 <= len(evaluated) < 4
    assert entry["value"] == pytest.approx(sum(evaluated) / len(evaluated))


def test_a_figure_where_less_is_better_is_minimised(tmp_path: Path) -> None:
    sweep = quick_sweep(tmp_path, {"seed": {"value": 0}, "local_lr": {"values": [0.1, 0.001]}}, "num_rounds=3")
    launch_here(sweep)
    content = chosen_of(sweep, metrics.TEST_LOSS)
    losses = {entry.params["local_lr"]: entry.summary[metrics.TEST_LOSS] for entry in entries_of(sweep)}
    of_rounds = chosen_of(sweep, metrics.TEST_LOSS, last=2)
    entry = of_rounds["chosen"]["none"]["fedavg"]
    rows = read_directory(sweep.output / entry["run"]).history[metrics.TEST_LOSS].to_pylist()
    assert len(rows) > 2
    assert entry["value"] == pytest.approx(sum(rows[-2:]) / 2)
    assert (of_rounds["provenance"]["by"], of_rounds["provenance"]["last_rounds"]) == (metrics.TEST_LOSS, 2)
    with pytest.raises(UserError, match=r"--by test/acc --last 2: run .* logged no such number.*test/accuracy"):
        chosen_of(sweep, "test/acc", last=2)
    assert content["provenance"]["goal"] == "minimize"
    best = min(losses, key=lambda rate: losses[rate])
    assert content["chosen"]["none"]["fedavg"]["keys"] == {"local_lr": best}
    write_chosen(tmp_path / "chosen.yaml", content)
    assert compose([f"chosen={tmp_path / 'chosen.yaml'}"]).local_lr == best  # a run without a scenario reads it
    assert check_chosen(tmp_path / "chosen.yaml", [("none", "fedavg")]).problems == []


def test_what_was_not_evaluated_is_not_selected_on(tmp_path: Path) -> None:
    sweep = quick_sweep(tmp_path, {"seed": {"values": [0]}})
    launch_here(sweep)
    with pytest.raises(
        UserError, match=r"--select-on validation: .* launch the sweep with data.validation_fraction=0.1"
    ):
        chosen_of(sweep, select_on="validation")
    held_out = quick_sweep(tmp_path, {"seed": {"values": [0]}}, "data.validation_fraction=0.2")
    launch_here(held_out)
    assert chosen_of(held_out, select_on="validation")["provenance"]["split"] == "validation"
    with pytest.raises(UserError, match="--select-on test: the trials were evaluated on validation data"):
        chosen_of(held_out, select_on="test")


def test_a_choice_is_for_one_preset(tmp_path: Path) -> None:
    sweep = quick_sweep(tmp_path, {"preset": {"values": ["paper", "released"]}}, "num_rounds=1")
    launch_here(sweep)
    with pytest.raises(UserError, match=r"preset=paper and released.*launch the sweep with preset=\[paper\]"):
        chosen_of(sweep)
    one = quick_sweep(tmp_path, {"preset": {"values": ["paper", "released"]}}, "num_rounds=1", "preset=[paper]")
    launch_here(one)
    assert chosen_of(one)["provenance"]["finished_trials"] == 1


def test_nothing_to_choose_from_is_said(tmp_path: Path) -> None:
    sweep = quick_sweep(tmp_path, {"seed": {"values": [0]}})
    with pytest.raises(UserError, match="has no finished trial to choose from"):
        chosen_of(sweep)
    launch_here(sweep)
    with pytest.raises(UserError, match=r"--by test/acuracy: run .* has no such metric; it has .*test/accuracy"):
        chosen_of(sweep, "test/acuracy")
