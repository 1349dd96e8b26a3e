"""What is not a number, or no longer one, ends a run where it appears or is left out as asked; tables show it."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fl_platform.paper.methods import METHODS
from fl_platform.runs import metrics
from fl_platform.runs.checkpoint_files import newest_valid
from tests.torture.hostile import judge

Scale = Callable[[int, int], int]
Note = Callable[[str, object], None]
SMALL = (
    *("num_workers=12", "cohort_size=4", "num_rounds=6", "local_steps=2", "batch_size=8", "data.dirichlet_omega=1"),
    *("checkpoint.every=1", "trainer.enable_progress_bar=false", "plugins=[tests.torture.odd_data]"),
    *("algorithm.memory_size=8", "--drop-unused"),
)
NAMES = ("fedavg", "scaffold", "gradma", "mifa")  # the last sends another vector than its update


class Ran:
    """Exit code, rows, result and the final parameters of a run."""

    def __init__(self, output: Path, *args: str) -> None:
        self.code = judge("run", *SMALL, "tracking.mode=disabled", *args, f"output.dir={output}", codes=(0, 3)).code
        (path,) = output.glob("*/result.json")
        self.result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        (attempt,) = (path.parent / "attempts").iterdir()
        self.rows = [json.loads(line) for line in (attempt / "rounds.jsonl").read_text("utf-8").splitlines()]
        checkpoint = newest_valid(attempt / "checkpoints")
        assert checkpoint is not None
        state = torch.load(checkpoint, weights_only=True)["state_dict"]
        self.is_finite = all(bool(torch.isfinite(tensor).all()) for tensor in state.values())

    def first(self, key: str) -> int | None:
        return next((row[metrics.ROUND] for row in self.rows if row.get(key)), None)


def check_ends_at(ran: Ran, round: int | None) -> None:
    """Diverged at that round, which is the last one; what it would have done to the model was not done."""
    assert round is not None
    assert (ran.code, ran.result[metrics.STATUS], ran.result["diverged_round"]) == (3, "diverged", round)
    assert len(ran.rows) == round
    assert metrics.TEST_ACCURACY not in ran.rows[-1]
    assert ran.is_finite


def names(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return tuple(METHODS) if request.config.getoption("--torture") else NAMES


def test_a_worker_that_sends_nan_ends_the_run_in_that_round(
    tmp_path: Path, request: pytest.FixtureRequest, record_property: Note
) -> None:
    for name in names(request):
        ran = Ran(tmp_path / name, f"algorithm.name={name}", "faults.kind=nan", "faults.probability=0.15")
        check_ends_at(ran, ran.first(metrics.FAULTY_WORKERS))
    record_property("algorithms ended by a NaN in its round", len(names(request)))


def test_an_update_beyond_the_largest_number_ends_the_run_in_that_round(
    tmp_path: Path, request: pytest.FixtureRequest, record_property: Note
) -> None:
    args = ("faults.kind=huge", "faults.scale=1e60", "faults.probability=0.15")
    for name in names(request):
        ran = Ran(tmp_path / name, f"algorithm.name={name}", *args)
        check_ends_at(ran, ran.first(metrics.FAULTY_WORKERS))
    record_property("algorithms ended by an infinite update in its round", len(names(request)))


@pytest.mark.parametrize("kind", ["nan", "huge"])
def test_rejected_workers_are_counted_and_the_run_goes_on(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, record_property: Note
) -> None:
    args = (f"faults.kind={kind}", "faults.scale=1e60", "faults.probability=0.3", "faults.reject_nonfinite=true")
    for name in names(request):
        ran = Ran(tmp_path / name, f"algorithm.name={name}", *args)
        assert (ran.code, len(ran.rows), ran.is_finite) == (0, 6, True)
        counted = [(row[metrics.FAULTY_WORKERS], row[metrics.REJECTED_WORKERS]) for row in ran.rows]
        assert all(faulty == rejected for faulty, rejected in counted)
        assert sum(faulty for faulty, _ in counted) > 0
    record_property(f"algorithms that went on without workers of kind={kind}", len(names(request)))


def check_sound_or_ended(ran: Ran) -> None:
    """Whichever way it went, nothing that is not a number was taken for a result."""
    figures = [row[key] for row in ran.rows for key in (metrics.TEST_ACCURACY, metrics.TEST_LOSS) if key in row]
    if ran.code == 0:
        assert len(ran.rows) == 6
        assert ran.is_finite
        assert all(figure is not None and math.isfinite(figure) for figure in figures)
    else:
        assert ran.result["diverged_round"] == len(ran.rows)


@pytest.mark.parametrize(
    "args",
    [
        ("server_lr=1e30",),
        ("local_lr=1e30", "model.norm=none"),
        ("faults.kind=huge", "faults.probability=0.5"),
        ("faults.kind=huge", "faults.scale=1e30", "faults.probability=1"),
    ],
    ids=" ".join,
)
def test_explosions_end_as_diverged_or_stay_numbers(
    args: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest, record_property: Note
) -> None:
    ended = 0
    for name in names(request):
        ran = Ran(tmp_path / name, f"algorithm.name={name}", *args)
        check_sound_or_ended(ran)
        ended += ran.code == 3
    record_property(f"algorithms that diverged under {' '.join(args)}", f"{ended} of {len(names(request))}")


@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize("data", ["black_digits", "twin_digits"])
def test_constant_input_and_coinciding_anchors_are_computed_with(
    data: str, preset: str, tmp_path: Path, request: pytest.FixtureRequest, record_property: Note
) -> None:
    """The Gram matrix of the QP is singular when all updates are equal; projecting must not invent a direction."""
    for name in names(request):
        ran = Ran(tmp_path / name, f"algorithm.name={name}", f"data.name={data}", f"preset={preset}", "model.norm=none")
        assert (ran.code, len(ran.rows), ran.is_finite) == (0, 6, True)
        check_sound_or_ended(ran)
    record_property(f"algorithms on {data}, preset={preset}", len(names(request)))


def test_a_table_shows_divergence_and_averages_only_what_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: Scale
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports" / "all").mkdir(parents=True)
    (tmp_path / "reports" / "all" / "report.yaml").write_text(
        "sources: [../../runs]\ntables: [{kind: statistic, name: top}, {kind: target, name: reached}]\n"
    )
    for name in NAMES[: scale(1, 3)]:
        for seed in range(scale(3, 5)):
            args = (f"algorithm.name={name}", f"seed={seed}", "faults.kind=nan", "faults.probability=0.03")
            judge("run", *SMALL, *args, "output.dir=runs", codes=(0, 3))
    results = [json.loads(path.read_text(encoding="utf-8")) for path in Path("runs").glob("*/result.json")]
    tops = [result[metrics.TOP_ACCURACY] for result in results if result[metrics.STATUS] == "finished"]
    diverged = len(results) - len(tops)
    assert tops
    assert diverged, "the seeds of this test must hold both outcomes"
    assert judge("report", "all", "--archive", "--html").code == 0
    shown = (tmp_path / "reports" / "all" / "top.txt").read_text(encoding="utf-8")
    total = scale(3, 5)
    if len(results) == total:
        assert f"{100 * sum(tops) / len(tops):.2f}" in shown
        assert f"diverged {diverged}/{total}" in shown
    else:
        assert shown.count("diverged") == scale(1, 3)
    assert "diverged" in (tmp_path / "reports" / "all" / "reached.txt").read_text(encoding="utf-8")
    assert "diverged" in judge("report", "--source", "runs", "--rows", "algorithm.name").out
    archived = judge("report", "--source", "reports/all/runs.parquet", "--rows", "algorithm.name").out
    assert archived == judge("report", "--source", "runs", "--rows", "algorithm.name").out
