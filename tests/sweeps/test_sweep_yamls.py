"""Every YAML in sweeps/: current, valid, the size it says, and one of its trials runs."""

import re
from pathlib import Path

import pytest
import yaml

from fl_platform.federation.launch import launch
from fl_platform.paper.methods import METHODS
from fl_platform.paper.scenarios import DATA_LABELS
from fl_platform.paper.sweeps import BUDGET, budget_points, grid_points
from fl_platform.runs import metrics
from fl_platform.sweeps.check import check_sweep
from fl_platform.sweeps.definition import read_sweep
from fl_platform.sweeps.proposals import grid
from fl_platform.sweeps.trials import make_trial
from tools.sweeps import all_sweeps, grid_of, header, write

SWEEPS = Path(__file__).resolve().parents[2] / "sweeps"
FILES = sorted(SWEEPS.glob("*.yaml"))
GENERATED = [path for path in FILES if not path.name.startswith("chosen_")]
SIZES = {
    "table_mnist": 16 * 5 * 3, "table_cifar10": 16 * 3 * 3, "table_cifar100": 16 * 3 * 3,
    "table_tiny_imagenet": 16 * 3 * 3,
    "tune_mnist": 468 * 5, "tune_cifar10": 468 * 3, "tune_cifar100": 468 * 3, "tune_tiny_imagenet": 468 * 3,
    "tune_mnist_budget": 16 * 9 * 3, "tune_cifar10_budget": 16 * 9 * 3, "tune_cifar100_budget": 16 * 9 * 3,
    "tune_tiny_imagenet_budget": 16 * 9 * 3, "fig_betas_mnist": 36 * 9, "fig_betas_cifar10": 36 * 9,
    "fig_memory_mnist": 7 * 9, "fig_memory_cifar10": 7 * 9, "fig_policies_mnist": 5 * 9, "demo_digits": 32,
    "variants_mnist": 54,
    "rates_mnist": 324, "rates_validation_mnist": 108, "check_mnist": 6 * 2 * 3, "check_first_mnist": 36,
    "check_pairs_mnist": 36,
    "settled_mnist": 6 * 3 * 5,
    "norms_mnist": 4 * 3 * 3 * 3, "choose_cifar10": 16 * 3, "precision_cifar10": 3 * 2, "columns_cifar10": 16 * 3,
    "seeds_cifar10": 6 * 2, "speedup_digits": 2 * (4 + 3) * 5,
    "forgetting_mnist": 4 * 2 * 3, "memory_mnist": 11 * 3, "policies_mnist": 5 * 2 * 3,
    "robust_digits": 7 * 3 * 5 * 2 * 3, "tune_benchmark_digits": 42 * 4, "benchmark_digits": 42 * 3,
    "tune_benchmark_mnist": 42 * 6, "benchmark_mnist": 42 * 3, "tune_personal_mnist": 7 * 6, "personal_mnist": 7 * 3,
}  # fmt: skip
SMALL = [
    "data.name=digits",
    "model.name=mlp",
    "num_rounds=2",
    "evaluation.every=1",
    "local_steps=1",
    "tracking.mode=disabled",
]


def test_the_committed_files_are_what_make_sweeps_writes(tmp_path: Path) -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in write(tmp_path)}
    assert written == {path.name: path.read_text(encoding="utf-8") for path in GENERATED}
    assert sorted(SIZES) == sorted(path.stem for path in GENERATED)
    assert len(GENERATED) == len(SIZES)


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.stem)
def test_a_sweep_is_valid_and_as_large_as_its_header_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SWEEPS.parent)
    verdict = check_sweep(path, most_points=12)
    assert verdict.problems == []
    assert verdict.resolved == verdict.runs > 5
    assert verdict.trials == SIZES[path.stem]
    said = re.search(r"^# cost: (\d+) trials, about [\d.]+ core-", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert said is not None
    assert int(said[1]) == verdict.trials


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.stem)
def test_a_trial_of_a_sweep_runs_two_rounds(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SWEEPS.parent)
    sweep = read_sweep(path, [*SMALL, f"output.dir={tmp_path}"])
    points = grid(sweep)
    trial = make_trial(sweep, tmp_path, 0, points[len(points) * 2 // 3])
    assert launch(trial.spec).summary[metrics.ROUNDS] == 2


POINTS = {name: grid_points(name, grid_of(name)) for name in METHODS}


def test_full_grids_are_those_of_appendix_b() -> None:
    """Two rates of three values; a third for mu, alpha, beta_1 and beta_2 each; FedDyn's server rate is 1."""
    sizes = {name: len(points) for name, points in POINTS.items()}
    nine = dict.fromkeys(["fedavg", "moon", "fedmlb", "scaffold", "mifa", "gradma_w", "feddyn"], 9)
    more = dict.fromkeys(["fedavgm", "fedprox", "mifam", "moonm", "fedmlbm", "mimelite"], 27)
    assert sizes == {**nine, **more, **dict.fromkeys(["fedproxm", "gradma_s", "gradma"], 81)}
    assert all("server_lr=1.0" in point for point in POINTS["feddyn"])


def test_tune_sweeps_list_the_full_grids() -> None:
    """The four tune sweeps list the same points, every one of them once."""
    lists = [yaml.safe_load((SWEEPS / f"tune_{name}.yaml").read_text(encoding="utf-8")) for name in DATA_LABELS]
    points = lists[0]["parameters"]["point"]["values"]
    assert all(other["parameters"]["point"]["values"] == points for other in lists)
    assert points == [point for own in POINTS.values() for point in own]
    assert len(set(points)) == 468


def test_the_budget_is_equal_and_drawn_from_the_grids() -> None:
    for name, points in POINTS.items():
        drawn = budget_points(name, points)
        assert len(set(drawn)) == BUDGET
        assert set(drawn) <= set(points)


def test_headers_hold_the_commands() -> None:
    for sweep in all_sweeps():
        text = header(sweep)
        assert f"python -m fl_platform sweep run sweeps/{sweep.name}.yaml" in text
        assert f"wandb sweep sweeps/{sweep.name}.yaml" in text
        assert max(map(len, text.splitlines())) <= 120


def test_tables_list_the_methods_in_the_order_of_the_paper() -> None:
    for sweep in all_sweeps():
        if sweep.name.startswith("table_"):
            assert sweep.parameters["algorithm.name"]["values"] == list(METHODS)
