"""Forgetting by worker, speed-up over a key and errors of projections: numbers that can be told by hand."""

from pathlib import Path

import numpy as np
import pytest

from fl_platform.errors import UserError
from fl_platform.paper.claims import COHORT_SIZES, WORKER_ROUNDS, fewest_rounds
from fl_platform.reporting.figures import accuracy_curves, forgetting_curves
from fl_platform.reporting.forgetting import GROUPS, absence_figure, absence_table
from fl_platform.reporting.measures import per_run
from fl_platform.reporting.qp_errors import error_table
from fl_platform.reporting.speed_up import falling_crossing, speed_up_figure, speed_up_table
from fl_platform.reporting.worker_curves import worker_curves
from fl_platform.runs import archive, metrics
from fl_platform.runs.frames import Runs, to_frames
from fl_platform.runs.record import RunRecord, readable
from tests.synthetic_logs import make_log

NAN = float("nan")
EACH = [[0.5, 0.2, NAN], None, [0.8, 0.1, NAN], [0.4, 0.4, NAN]]
COHORTS = [[0.0], [1.0], [0.0], [2.0]]


def scored(algorithm: str = "fedavg", seed: int = 0) -> RunRecord:
    """Four rounds of three workers, the third of them without samples; round 2 scores nobody."""
    columns = {metrics.EACH_WORKER: EACH, metrics.COHORT: COHORTS}
    return make_log(algorithm, seed, rounds=4, columns=columns, run_id=f"{algorithm}{seed}")


@pytest.fixture(scope="module")
def scored_runs() -> Runs:
    return to_frames([scored(name, seed) for name in ("fedavg", "gradma") for seed in (0, 1)])


def test_forgetting_is_the_drop_from_a_worker_s_best_round(scored_runs: Runs) -> None:
    found = worker_curves(scored_runs)["fedavg0"]
    assert found.rounds.tolist() == [1, 3, 4]
    np.testing.assert_allclose(found.forgetting[:, :2], [[0, 0], [0, 0.1], [0.4, 0]], atol=1e-12)
    np.testing.assert_array_equal(found.absence, [[0, NAN, NAN], [0, 1, NAN], [1, 2, 0]])
    assert per_run(scored_runs)["worker_forgetting"].tolist() == pytest.approx([0.2] * 4)


def test_forgetting_by_absence(scored_runs: Runs) -> None:
    table = absence_table(scored_runs, last=1.0)
    texts = dict(zip(("accuracy", "all", *GROUPS), [cell.text for cell in table.blocks[0][0].cells], strict=True))
    missing = dict.fromkeys(GROUPS[2:], "missing")
    assert texts == {"accuracy": "40.0±0.0", "all": "8.3±0.0", "0": "0.0±0.0", "1-4": "16.7±0.0", **missing}
    assert [row.label.rpartition(": ")[2] for row in table.blocks[0]] == ["FedAvg", "GradMA"]
    assert len(absence_figure(scored_runs).axes) == 1
    line = forgetting_curves(scored_runs, of="workers").axes[0].lines[0]
    np.testing.assert_allclose(line.get_ydata(), [0, 5, 20], atol=1e-9)
    with pytest.raises(UserError, match=r"run with evaluation\.workers=true evaluation\.each_worker=true"):
        absence_table(to_frames([make_log(rounds=3)]))
    with pytest.raises(UserError, match=r"last=0 is not allowed; it must be > 0 and <= 1"):
        absence_table(scored_runs, last=0)


def test_an_archive_keeps_the_accuracies_of_each_worker_with_their_cohorts(tmp_path: Path) -> None:
    others = make_log("mifa", rounds=4, columns={metrics.COHORT: COHORTS}, run_id="mifa0")
    archive.write([scored(), others], tmp_path / "runs.parquet")
    kept, plain = archive.read(tmp_path / "runs.parquet")
    np.testing.assert_allclose(kept.history[metrics.EACH_WORKER].to_pylist()[2], EACH[2], atol=1e-7)
    assert kept.history[metrics.COHORT].to_pylist() == COHORTS
    assert metrics.COHORT not in plain.history.column_names
    archive.write([kept, plain], tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "runs.parquet").read_bytes()


def falling(size: int, seed: int, speed: float) -> RunRecord:
    """A loss of 2 / (1 + speed t)."""
    loss = 2 / (1 + speed * np.arange(1, 101))
    columns = {metrics.WORKERS_LOSS: loss}
    return make_log("fedavg", seed, rounds=100, cohort_size=size, columns=columns, run_id=f"{size}-{seed}")


def test_rounds_in_inverse_proportion_have_slope_minus_one() -> None:
    runs = to_frames([falling(size, seed, size * (1 + seed) / 400) for size in (5, 10, 20) for seed in (0, 1, 2)])
    table = speed_up_table(runs, "cohort_size", target=1.0)
    texts = [cell.text for cell in table.blocks[0][0].cells]
    assert texts[0] == "49±28"  # rounds 80, 40 and 26.7
    assert table.numbers["slope"].unique() == pytest.approx([-1], abs=5e-3)
    assert speed_up_table(runs, "cohort_size").numbers["target"].unique() == pytest.approx([0.89])  # 2 / 2.25 = 0.889
    assert speed_up_table(runs, "cohort_size", target=0.5).blocks[0][0].cells[0].text == "-- by 2 of 3"
    assert speed_up_figure(runs, "cohort_size", target=1.0).axes[0].get_xscale() == "log"
    assert falling_crossing(np.array([3.0, 2.0, 1.0]), np.array([1.0, 11.0, 21.0]), 1.5) == 16
    with pytest.raises(UserError, match="no finished run has cohort_size and logged workers/accuracy"):
        speed_up_table(runs, "cohort_size", "workers/accuracy")


def test_errors_of_projections_beside_the_corollary() -> None:
    columns = {
        metrics.QP_WORKER_ERROR: np.linspace(2, 1, 20),
        metrics.QP_WORKER_LENGTH: np.full(20, 4.0),
        metrics.QP_SERVER_ERROR: np.full(20, 0.2),
        metrics.QP_SERVER_LENGTH: np.full(20, 0.5),
    }
    more = {"num_rounds": 16, "local_steps": 16, "algorithm__memory_decay": 0.75}
    runs = to_frames([make_log("gradma", 0, rounds=20, cohort_size=16, columns=columns, **more)])
    row = error_table(runs, ["cohort_size"], smoothness=2).numbers.iloc[0]
    assert (row["epsilon_l_largest"], row["epsilon_g_largest"]) == pytest.approx((2.0, 0.1))
    assert row["epsilon_l_first"] > row["epsilon_l_last"] > 1
    assert (row["corollary's epsilon_l"], row["corollary's epsilon_g"]) == pytest.approx((0.25, 1 / 16))
    with pytest.raises(UserError, match=r"run with algorithm\.qp\.log_errors=true"):
        error_table(to_frames([make_log("gradma", rounds=3)]), [])


def test_rounds_of_the_sweep_meet_the_conditions_of_the_corollary() -> None:
    assert all(WORKER_ROUNDS / size >= fewest_rounds(size, 100, 0.1) for size in COHORT_SIZES)
    assert fewest_rounds(100, 100, 0.0) == pytest.approx(320)  # no noise of sampling: (sqrt(1280))^2 / 4


@pytest.mark.parametrize("key", ["algorithm.name", "seed"])
def test_a_speed_up_is_over_positive_numbers(key: str) -> None:
    runs = to_frames([falling(5, seed, 0.1) for seed in (0, 1)])
    with pytest.raises(UserError, match=rf"key={key} is (fedavg|0) in some runs; a speed-up is over positive numbers"):
        speed_up_table(runs, key)


def test_a_target_that_no_run_reaches_is_not_drawn() -> None:
    runs = to_frames([falling(size, 0, 0.1) for size in (5, 10)])
    with pytest.raises(UserError, match="target=-1: no run reaches it"):
        speed_up_figure(runs, "cohort_size", target=-1)


@pytest.mark.parametrize("smoothness", [0, -1, float("inf"), NAN])
def test_a_smoothness_is_positive(smoothness: float) -> None:
    with pytest.raises(UserError, match=rf"smoothness={smoothness:g} is not allowed; it must be a finite number > 0"):
        error_table(to_frames([make_log("gradma", rounds=3)]), [], smoothness=smoothness)


@pytest.mark.parametrize("metric", [metrics.ROUND, metrics.EACH_WORKER, metrics.COHORT])
def test_a_metric_has_one_number_a_round(metric: str, scored_runs: Runs) -> None:
    message = f"metric={metric} is not allowed; it must be a metric with one number a round"
    with pytest.raises(UserError, match=message):
        speed_up_table(scored_runs, "cohort_size", metric)
    with pytest.raises(UserError, match=message):
        accuracy_curves(scored_runs, "all", metric)


@pytest.mark.parametrize(
    ("each", "cohorts", "problem"),
    [
        (["a", None, "b", "c"], COHORTS, "workers/each_accuracy is not a list of numbers in every round"),
        ([0.5, 0.5, 0.5, 0.5], COHORTS, "workers/each_accuracy is not a list of numbers in every round"),
        ([[0.5], None, [0.5, 0.5], None], COHORTS, "workers/each_accuracy has 1 workers in one round and 2 in another"),
        ([[], None, [0.5], None], COHORTS, "workers/each_accuracy has 0 workers in one round and 1 in another"),
        (EACH, ["x", "[1]", "{}", "null"], "cohort/workers is not a list of numbers in every round"),
        (EACH, [[0.0], None, [0.0], [1.0]], "cohort/workers is missing in a round"),
        (EACH, [[0.0], [3.0], [0.0], [1.0]], "cohort/workers holds 3; workers are 0..2"),
        (EACH, [[0.0], [-1.0], [0.0], [1.0]], "cohort/workers holds -1; workers are 0..2"),
        (EACH, [[0.0], [0.5], [0.0], [1.0]], "cohort/workers holds 0.5; workers are 0..2"),
        (EACH, [[0.0], [None], [0.0], [1.0]], "cohort/workers holds nan; workers are 0..2"),
    ],
)
def test_lists_of_workers_that_no_run_logs_leave_the_other_runs_as_they_are(each, cohorts, problem) -> None:
    columns = {metrics.EACH_WORKER: each, metrics.COHORT: cohorts}
    foreign = readable(make_log("gradma", 0, rounds=4, columns=columns, run_id="foreign"))
    runs = to_frames([scored(), foreign])
    [warning] = runs.warnings
    assert warning.endswith(f": {problem}; the run's lists of workers are left out")
    assert worker_curves(runs).keys() == {"fedavg0"}
    assert absence_table(runs).blocks == absence_table(to_frames([scored()])).blocks


def test_accuracies_of_workers_without_cohorts_are_left_out() -> None:
    foreign = readable(make_log("gradma", 0, rounds=4, columns={metrics.EACH_WORKER: EACH}, run_id="foreign"))
    assert "cohort/workers is missing; the run's lists" in foreign.warnings[0]
    assert worker_curves(to_frames([scored(), foreign])).keys() == {"fedavg0"}
