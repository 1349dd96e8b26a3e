"""Curves for a browser: averaging, thinning, windows, labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_platform.reporting import lines
from fl_platform.reporting.curves import Curve, average
from fl_platform.reporting.lines import Chart, make_lines, seed_of, thin, window
from fl_platform.reporting.shown import ShownRun, differing, differing_among, differing_settings, row, shown
from fl_platform.reporting.styles import distinct
from fl_platform.runs import metrics
from fl_platform.runs.record import one_row_per_round
from tests.synthetic_logs import make_log

numbers = st.floats(-1e6, 1e6)


def runs(*logs: object) -> list[ShownRun]:
    return [shown(log) for log in logs]  # type: ignore[arg-type]


@given(st.lists(numbers, min_size=1, max_size=400), st.integers(0, 60))
def test_a_thinned_curve_is_short_and_keeps_its_ends_and_extremes(values: list[float], points: int) -> None:
    curve = np.array(values)
    kept = thin(curve, points)
    assert len(kept) <= max(points, 4)
    assert (np.diff(kept) > 0).all()
    assert {kept[0], kept[-1]} == {0, len(curve) - 1}
    assert curve[kept].min() == curve.min()
    assert curve[kept].max() == curve.max()


@given(st.lists(numbers, min_size=1, max_size=300), st.integers(8, 40))
def test_each_stretch_keeps_its_own_extremes(values: list[float], points: int) -> None:
    curve = np.array(values)
    kept = thin(curve, points)
    width = -(-len(curve) // ((points - 2) // 2))
    for start in range(0, len(curve), width):
        inside = kept[(kept >= start) & (kept < start + width)]
        assert curve[inside].min() == curve[start : start + width].min()
        assert curve[inside].max() == curve[start : start + width].max()


def test_another_axis_is_averaged_too() -> None:
    seeds = [seed_of(run, metrics.TEST_ACCURACY, "seconds") for run in runs(make_log(seed=0, rounds=3))]
    np.testing.assert_allclose(seeds[0].x, [0.5, 1.0, 1.5])
    made = runs(make_log(seed=0, rounds=3), make_log(seed=1, rounds=3))
    (line,) = make_lines(made, Chart(axis="bytes"))["lines"]
    assert line["x"] == [1e6, 2e6, 3e6]
    without = runs(make_log(columns={metrics.TOTAL_BYTES: ["x"] * 40}))
    assert make_lines(without, Chart(axis="bytes"))["lines"][0]["x"] == []


def test_a_window_reaches_one_point_beyond_its_ends() -> None:
    x = np.arange(1.0, 11.0)
    curve = Curve(x, x, x, x, x)
    assert window(curve, 4.2, 6).x.tolist() == [4, 5, 6, 7]
    assert window(curve, -np.inf, np.inf).x.tolist() == x.tolist()
    assert window(curve, 50, 60).x.tolist() == [10]


def test_a_line_and_its_band_are_those_of_the_figures() -> None:
    """Two seeds of unequal length, smoothed: the dashboard draws what ``curves.average`` says."""
    made = runs(make_log(seed=0, accuracy=[0.1, 0.3, 0.5]), make_log(seed=1, accuracy=[0.3, 0.9]))
    (line,) = make_lines(made, Chart(smooth=2))["lines"]
    expected = average([seed_of(run, metrics.TEST_ACCURACY, "rounds") for run in made], smooth=2, most=1.0)
    np.testing.assert_allclose(line["mean"], expected.mean, rtol=1e-5)
    np.testing.assert_allclose(line["low"][:2], expected.low[:2], rtol=1e-5)
    assert (line["low"][2], line["high"][2]) == (None, None)  # one seed


def test_algorithms_keep_their_colours_and_the_order_of_the_paper() -> None:
    made = runs(*(make_log(name, seed) for name in ("gradma", "moon", "fedavg") for seed in range(2)))
    found = make_lines(made, Chart())["lines"]
    assert [line["label"] for line in found] == ["FedAvg", "MOON", "GradMA"]
    assert [line["color"] for line in found] == ["#000000", "#009E73", "#D55E00"]
    assert [line["n"] for line in found] == [2, 2, 2]
    assert all(len(line["x"]) == len(line["mean"]) == len(line["low"]) == len(line["high"]) for line in found)


def test_a_method_of_others_has_its_label_and_a_style_of_its_own() -> None:
    own = [make_log("mine", run__label="Mine++"), make_log("copy", run__label="FedAvg"), make_log("bare")]
    found = make_lines(runs(make_log("fedavg"), *own), Chart())["lines"]
    assert [line["label"] for line in found] == ["FedAvg", "bare", "FedAvg (copy)", "Mine++"]
    assert len({line["color"] for line in found}) == 4
    assert row(shown(own[0]))["algorithm"] == "Mine++"


def test_a_line_says_what_it_averages_besides_seeds() -> None:
    made = runs(make_log(seed=0, local_lr=0.1), make_log(seed=1, local_lr=0.01))
    (line,) = make_lines(made, Chart(by=("algorithm",)))["lines"]
    assert line["averages"] == ["local_lr"]
    apart = make_lines(made, Chart(by=("algorithm", "local_lr")))["lines"]
    assert [(line["label"], line["averages"]) for line in apart] == [("local_lr=0.01", []), ("local_lr=0.1", [])]
    assert len({line["color"] for line in apart}) == 2


def test_a_key_whose_default_is_null_is_not_averaged_in_silence() -> None:
    made = runs(make_log(seed=0, model__width=None), make_log(seed=1, model__width=16))
    (line,) = make_lines(made, Chart(by=("algorithm",)))["lines"]
    assert line["averages"] == ["model.width"]
    apart = make_lines(made, Chart(by=("algorithm", "model.width")))["lines"]
    assert [line["label"] for line in apart] == ["model.width=16", "model.width=null"]


def test_a_swept_key_differs_though_one_of_its_values_is_the_default() -> None:
    made = runs(*(make_log(seed=seed, local_lr=rate) for rate in (0.03, 0.1) for seed in range(2)))
    assert differing(made) == ["local_lr", "seed"]
    assert differing_settings(made) == ["local_lr"]
    assert differing(made[:1]) == []


def test_what_was_trained_is_told_before_how_it_was_evaluated() -> None:
    made = runs(make_log(local_lr=0.1, evaluation__every=3), make_log(local_lr=0.2, evaluation__every=4))
    assert differing_settings(made) == ["local_lr", "evaluation.every"]


def test_where_a_run_was_carried_out_is_no_setting() -> None:
    made = runs(make_log(output__dir="a", device="cpu"), make_log(output__dir="b", device="cuda"))
    assert differing(made) == ["device", "output.dir"]
    assert differing_settings(made) == []


def test_the_origin_of_a_run_is_no_setting() -> None:
    made = runs(make_log(run__id="a", run__commit="1"), make_log(run__id="b", run__commit="2"))
    assert differing(made) == ["run.commit"]
    assert differing_settings(made) == []


def test_options_are_compared_among_runs_of_one_algorithm() -> None:
    prox, plain, moon = make_log("fedprox", algorithm__mu=0.1), make_log("fedavg"), make_log("moon", algorithm__mu=5)
    assert differing(runs(prox, plain, moon)) == ["algorithm.name"]
    other = make_log("moon", algorithm__mu=1)
    assert differing(runs(prox, plain, moon, other)) == ["algorithm.mu", "algorithm.name"]
    lacking = make_log("moon")
    assert differing(runs(moon, lacking)) == ["algorithm.mu"]


def test_fewer_runs_differ_in_fewer_keys() -> None:
    made = runs(
        *(make_log(name, seed, algorithm__mu=mu) for name in ("moon", "fedprox") for seed in (0, 1) for mu in (1, 5)),
        make_log("moon", 7, note="x"),
        make_log("fedavg", 7),
    )
    keys = differing(made)
    for start in range(len(made)):
        for end in range(start + 1, len(made) + 1):
            assert differing_among(made[start:end], keys) == differing(made[start:end])


def test_a_key_that_only_some_runs_have_differs() -> None:
    assert differing(runs(make_log(), make_log(note="x"))) == ["note"]
    assert differing(runs(make_log(note="x"), make_log())) == ["note"]
    assert differing(runs(make_log("moon"), make_log(note="x"))) == ["algorithm.name", "note"]


def test_too_many_lines_are_counted_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_LINES", 3)
    found = make_lines(runs(*(make_log(seed=seed, rounds=2) for seed in range(5))), Chart(by=("run",)))
    assert (len(found["lines"]), found["left_out"]) == (3, 2)


def test_a_metric_nobody_logged_gives_no_line() -> None:
    assert make_lines(runs(make_log()), Chart(metric="no/such"))["lines"] == []


def test_what_is_not_finite_is_null() -> None:
    log = make_log(accuracy=[0.5, 0.6], columns={metrics.TRAIN_LOSS: np.array([np.inf, 1.0])})
    (line,) = make_lines(runs(log), Chart(metric=metrics.TRAIN_LOSS))["lines"]
    assert line["x"] == [2.0]
    assert row(shown(make_log(accuracy=[])))["top"] is None


def test_a_row_has_the_figures_of_the_rounds() -> None:
    log = make_log("gradma_w", seed=3, accuracy=[0.2, 0.9, 0.8], algorithm__memory_size=50)
    values = row(shown(log))
    assert (values["algorithm"], values["seed"], values["round"]) == ("GradMA-W", 3.0, 3.0)
    assert (values["top"], values["accuracy"]) == (0.9, 0.8)
    assert values["forgetting"] == pytest.approx(0.1)


def test_a_log_from_elsewhere_may_hold_anything() -> None:
    log = make_log(data__dirichlet_omega="steep", num_rounds="many", algorithm__name=["a"])
    values = row(shown(log))
    assert (values["scenario"], values["rounds"], values["algorithm"]) == ("None, unknown, S=0", None, "unknown")
    text_column = make_log(columns={metrics.FORGETTING: ["x"] * 40})
    assert row(shown(text_column))["forgetting"] is None
    assert one_row_per_round(text_column.history).num_rows == 40


def test_a_method_looks_the_same_in_charts_that_stand_together() -> None:
    made = runs(*(make_log(f"own{place}") for place in range(6)))
    methods = distinct(run.method for run in made)
    every = {line["label"]: line["color"] for line in make_lines(made, Chart(), methods)["lines"]}
    for run in made:
        (line,) = make_lines([run], Chart(), methods)["lines"]
        assert line["color"] == every[line["label"]]
