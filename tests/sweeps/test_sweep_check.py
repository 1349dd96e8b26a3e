"""``sweep check``: every kind of mistake is named with its place, its value and what is expected."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_sweeps import write_sweep

from fl_platform.cli import main
from fl_platform.sweeps.check import check_sweep
from fl_platform.sweeps.definition import COMMAND, make_sweep, read_sweep

SEED = {"seed": {"values": [0, 1]}}
ACCURACY = {"name": "test/accuracy", "goal": "maximize"}


def problems(directory: Path, parameters: dict[str, Any], **content: Any) -> list[str]:
    return check_sweep(write_sweep(directory / "x.yaml", parameters, **content)).problems


@pytest.mark.parametrize(
    ("parameters", "content", "said"),
    [
        (SEED, {"methd": "grid"}, "methd is not a key of a sweep; there is name, .*; did you mean 'method'?"),
        (
            SEED,
            {"method": "gird"},
            r"method=gird is not allowed; allowed: grid \| random \| bayes; did you mean 'grid'\?",
        ),
        (SEED, {"run_cap": 0}, "run_cap=0 is not allowed; it must be a whole number >= 1"),
        (SEED, {"run_cap": "many"}, "run_cap=many is not allowed; it must be a whole number >= 1"),
        (SEED, {"metric": "accuracy"}, "metric=accuracy is not allowed; it must have name: and goal:"),
        (
            {"seed": {"min": 0, "max": 10**30}},
            {"method": "random", "run_cap": 3},
            r"parameters\.seed\.max=10+ is not allowed; whole numbers go up to 9007199254740992",
        ),
        ({}, {}, "parameters={} is empty"),
        ({"preset": {"value": {"": 1, False: 2}}}, {}, "the key False is not text; put it in quotes"),
        (
            {"seed": [1, 2]},
            {},
            r"parameters\.seed=\[1, 2\] is not understood; expected value: V, values: \[V, \.\.\.\]",
        ),
        ({"seed": {"valeus": [1]}}, {}, r"parameters\.seed={'valeus': \[1\]} is not understood; expected value: V"),
        (
            {"local_lr": {"min": 2.0, "max": 1.0}},
            {"method": "random"},
            r"parameters\.local_lr=.*min 2.0 is not less than max 1.0",
        ),
        ({"local_lr": {"min": 0.1, "max": 1.0}}, {}, r"parameters\.local_lr=.* cannot be listed; a grid needs values"),
        ({"seed": {"values": [1, 1]}}, {}, r"parameters\.seed lists 1 more than once"),
        ({"sede": {"values": [1]}}, {}, "parameters: unknown key 'sede'; did you mean 'seed'?"),
        ({"local_lr": {"values": [0.1, -1]}}, {}, "local_lr=-1.0 is not allowed; it must be > 0"),
        (
            {"algorithm.name": {"values": ["fedavg", "fedprx"]}},
            {},
            "algorithm.name=fedprx is not known.*did you mean 'fedprox'",
        ),
        ({"algorithm.mu": {"values": [0.1]}}, {}, "algorithm.mu=0.1: fedavg has no such field"),
        ({"point": {"values": ["seed=1", "sede=1"]}}, {}, "unknown key 'sede'"),
        ({"scenario": {"values": ["mnist_w1"]}}, {}, "scenario=mnist_w1 is not known"),
        (
            SEED,
            {"command": ["python", "train.py", "${args}"]},
            "command=python train.py .* does not call `fl_platform run`",
        ),
        (SEED, {"command": ["python", "-m", "fl_platform", "run"]}, "the parameters would not reach the run"),
        (SEED, {"metric": {"name": "accuracy"}}, r"metric.name=accuracy is not logged; there is round, .*"),
        (SEED, {"metric": {"name": "test/accuracy"}}, r"metric.goal=minimize \(the default\) would look for the worst"),
        (
            SEED,
            {"metric": {**ACCURACY, "goal": "max"}},
            r"metric.goal=max is not allowed: allowed: minimize \| maximize",
        ),
        (SEED, {"early_terminate": {"type": "hyperband", "min_iter": 3}}, "early_terminate needs metric"),
        (SEED, {"metric": ACCURACY, "early_terminate": {"type": "hyperband"}}, "it needs max_iter and s or min_iter"),
        (SEED, {"method": "bayes"}, "method=bayes needs metric"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, parameters: dict[str, Any], content: dict[str, Any], said: str) -> None:
    found = problems(tmp_path, parameters, **content)
    assert len(found) == 1
    assert found[0].startswith(f"{tmp_path / 'x.yaml'}: ")
    assert re.search(said, found[0]), found[0]


def test_a_file_and_a_mapping_without_method_and_command_are_the_same_sweep(tmp_path: Path) -> None:
    content = {"name": "x", "parameters": SEED}
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    found = read_sweep(tmp_path / "x.yaml")
    assert (found.method, found.command) == ("grid", list(COMMAND))
    assert found.identifier == make_sweep(content).identifier
    assert check_sweep(tmp_path / "x.yaml").problems == []


def test_every_problem_is_told_and_the_exit_code_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_sweep(tmp_path / "good.yaml", SEED)
    bad = write_sweep(tmp_path / "bad.yaml", {"local_lr": {"values": [-1, 0.1, -2]}})
    assert main(["sweep", "check", str(good), str(bad), str(tmp_path / "none.yaml")]) == 2
    said = capsys.readouterr()
    assert said.out == f"{good}: 2 trials; 2 points resolved, 2 different runs\n"
    assert said.err.splitlines() == [
        f"{bad}: local_lr=-1.0 is not allowed; it must be > 0",
        f"{bad}: local_lr=-2.0 is not allowed; it must be > 0",
        f"{tmp_path / 'none.yaml'}: no such file",
    ]
    assert main(["sweep", "check", str(good)]) == 0


def test_a_large_grid_is_looked_at_until_every_value_has_occurred(tmp_path: Path) -> None:
    large = {
        "seed": {"values": list(range(50))},
        "local_lr": {"values": [0.1] * 1 + [0.2, 0.3]},
        "cohort_size": {"values": [5, 10, 500]},
    }
    verdict = check_sweep(write_sweep(tmp_path / "x.yaml", large))
    assert verdict.trials == 450
    assert verdict.resolved == 50
    assert len(verdict.problems) == 1
    assert "cohort_size=500 exceeds num_workers=100" in verdict.problems[0]


def test_equal_runs_and_searches_without_end_are_told(tmp_path: Path) -> None:
    twice = {"seed": {"values": [0, 1]}, "threads": {"values": [1, 2]}}  # threads do not change a run
    verdict = check_sweep(write_sweep(tmp_path / "x.yaml", twice))
    assert (verdict.trials, verdict.resolved, verdict.runs) == (4, 4, 2)
    search = {"local_lr": {"min": 0.01, "max": 0.1}}
    verdict = check_sweep(write_sweep(tmp_path / "x.yaml", search, method="random"))
    assert (verdict.problems, verdict.trials, verdict.resolved) == ([], None, 20)


def test_nested_parameters_are_read_as_dotted_keys(tmp_path: Path) -> None:
    nested = {"algorithm": {"parameters": {"name": {"value": "fedprox"}, "mu": {"values": [0.1, 0.2]}}}}
    verdict = check_sweep(write_sweep(tmp_path / "x.yaml", nested))
    assert (verdict.problems, verdict.trials, verdict.runs) == ([], 2, 2)


def test_a_chosen_values_file_among_sweeps_is_checked_entry_by_entry(tmp_path: Path, capsys) -> None:
    good, bad = tmp_path / "chosen_good.yaml", tmp_path / "chosen_bad.yaml"
    good.write_text("chosen: {mnist_w1_s10: {fedavg: {keys: {local_lr: 0.1}}}, mnist_w0.1_s10: mnist_w1_s10}")
    bad.write_text("chosen: {mnist_w1_s10: {fedavg: {keys: {local_lr: -1}}, fedafg: {keys: {}}}}")
    assert main(["sweep", "check", str(good)]) == 0
    assert "values for 2 pairs of algorithm and scenario" in capsys.readouterr().out
    sweep = write_sweep(tmp_path / "x.yaml", SEED)
    assert main(["sweep", "check", str(bad), str(tmp_path / "none.yaml"), str(sweep)]) == 2
    said = capsys.readouterr()
    assert re.search(r"fedavg in mnist_w1_s10: local_lr=-1.0 is not allowed", said.err)
    assert re.search(r"fedafg in mnist_w1_s10: .*did you mean 'fedavg'", said.err)
    assert "none.yaml: no such file" in said.err
    assert "x.yaml: 2 trials" in said.out  # a file that is wrong does not hide the others
