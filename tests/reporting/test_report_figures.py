"""Figures: deterministic bytes, every kind, honest errors. What they look like was judged by eye."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fl_platform.config.registry import DATASETS
from fl_platform.errors import UserError
from fl_platform.paper.methods import GROUPINGS, METHODS
from fl_platform.reporting import ablations, canvas, figures, key_lines, partition_figure, rank_figure
from fl_platform.runs import frames as runs
from fl_platform.runs import metrics
from fl_platform.runs.record import RunRecord, merge
from tests.synthetic_logs import make_log

QP = {key: np.linspace(0, 1, 10) for key in figures.QP_METRICS}


def load(*logs: RunRecord) -> runs.Runs:
    return runs.to_frames(merge(logs))


@pytest.fixture(scope="module")
def everyone() -> runs.Runs:
    return load(*(make_log(name, seed, rounds=10, columns=QP) for name in METHODS for seed in range(2)))


@pytest.fixture(scope="module")
def ablation() -> runs.Runs:
    return load(
        *(
            make_log(
                "gradma_s",
                seed,
                rounds=5,
                level=0.5 + size / 300 + decay / 10,
                algorithm__memory_size=size,
                algorithm__memory_decay=decay,
            )
            for seed in range(2)
            for size in (0, 10, 100)
            for decay in (0.1, 0.9)
        )
    )


@pytest.mark.parametrize("grouping", [*GROUPINGS, "all"])
def test_curves_have_a_line_and_a_band_per_algorithm(everyone: runs.Runs, grouping: str) -> None:
    figure = figures.accuracy_curves(everyone, grouping)
    (axis,) = figure.axes
    expected = list(GROUPINGS[grouping]) if grouping != "all" else list(METHODS)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [METHODS[name].label for name in expected]
    assert len(axis.lines) == len(axis.collections) == len(expected)
    drawn = {line.get_label(): line for line in axis.lines}
    for name in expected:
        own = everyone.runs.loc[everyone.runs["config.algorithm.name"] == name, "run_id"]
        values = (
            everyone.rounds[everyone.rounds["run_id"].isin(own)].groupby(metrics.ROUND)[metrics.TEST_ACCURACY].mean()
            * 100
        )
        np.testing.assert_allclose(drawn[METHODS[name].label].get_ydata(), values)


def test_bytes_depend_on_nothing_but_the_runs(everyone: runs.Runs, tmp_path: Path) -> None:
    first = canvas.save(figures.accuracy_curves(everyone, "gradma"), tmp_path / "a")
    second = canvas.save(figures.accuracy_curves(everyone, "gradma"), tmp_path / "b")
    assert [path.suffix for path in first] == [".png", ".svg", ".pdf"]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert b"CreationDate" not in first[2].read_bytes()
    with Image.open(first[0]) as image:
        assert image.size[0] > 300
        assert len(image.getcolors(maxcolors=1 << 24)) > 10


def test_ablations_show_the_means(ablation: runs.Runs) -> None:
    (axis,) = ablations.bars(runs.select(ablation, {"algorithm.memory_decay": 0.1}), "algorithm.memory_size").axes
    heights = [patch.get_height() for patch in axis.patches]
    top = ablation.runs.assign(top=ablation.runs[f"summary.{metrics.TOP_ACCURACY}"] * 100)
    chosen = top[top["config.algorithm.memory_decay"] == 0.1]
    np.testing.assert_allclose(heights, chosen.groupby("config.algorithm.memory_size")["top"].mean())
    assert axis.get_ylim()[0] == 0
    figure = ablations.heat_map(ablation, "algorithm.memory_size", "algorithm.memory_decay")
    table = top.pivot_table(index="config.algorithm.memory_size", columns="config.algorithm.memory_decay", values="top")
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), table)
    (curves,) = figures.key_curves(runs.select(ablation, {"algorithm.memory_decay": 0.1}), "algorithm.memory_size").axes
    assert [line.get_label() for line in curves.lines] == ["$m$ = 0", "$m$ = 10", "$m$ = 100"]


def test_methods_stand_side_by_side(everyone: runs.Runs) -> None:
    """`bars key=algorithm.name`: a panel per scenario, a bar per method in the order of tables."""
    figure = ablations.bars(everyone, "algorithm.name")
    (axis,) = figure.axes
    shown = [tick.get_text() for tick in axis.get_xticklabels()]
    assert shown == [method.label for method in METHODS.values()]
    assert figure._supxlabel.get_text() == "Mean ± std over seeds, n = 2"
    heat = ablations.heat_map(everyone, "algorithm.name", "seed")
    assert [tick.get_text() for tick in heat.axes[0].get_yticklabels()] == shown


def test_rates_lie_on_a_logarithmic_axis() -> None:
    logs = [make_log("fedavg", 0, local_lr=rate) for rate in (0.01, 0.03, 0.1)]
    axis = key_lines.key_lines(runs.to_frames(merge(logs)), "local_lr").axes[0]
    assert axis.get_xscale() == "log"
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["0.01", "0.03", "0.1"]


def test_accuracy_on_held_out_data_is_not_called_test_accuracy() -> None:
    held_out = make_log("fedavg", data__validation_fraction=0.1)
    tested = make_log("fedprox", data__validation_fraction=0.0)
    assert figures.accuracy_curves(load(held_out)).axes[0].get_ylabel() == "Held-out accuracy (%)"
    assert figures.accuracy_curves(load(held_out, tested)).axes[0].get_ylabel() == "Test accuracy (%)"


def test_lines_that_end_too_close_get_a_panel_of_their_end() -> None:
    rise = 1 - 0.7 ** np.arange(1, 31)
    close = [make_log(name, accuracy=(0.9 + place / 1000) * rise) for place, name in enumerate(list(METHODS)[:9])]
    low = make_log("gradma", accuracy=0.1 * rise)  # where an inset would be
    whole, end = figures.accuracy_curves(load(*close, low)).axes
    assert end.get_title() == "The end, enlarged"
    assert end.get_ylim()[0] > 85 > whole.get_ylim()[0]
    assert end.get_xlim() == pytest.approx((24.2, 30))
    assert len(figures.accuracy_curves(load(*close[:7], low)).axes) == 1


def test_a_key_of_the_scenario_does_not_divide_panels() -> None:
    logs = [
        make_log("fedavg", seed, local_lr=rate, data__dirichlet_omega=omega)
        for seed in range(2)
        for rate in (0.01, 0.1)
        for omega in (0.1, 1.0)
    ]
    found = runs.to_frames(merge(logs))
    heat = ablations.heat_map(found, "data.dirichlet_omega", "local_lr")
    assert [axis.get_title() for axis in heat.axes] == ["FedAvg, MNIST, S=10"]
    assert heat.axes[0].images[0].get_array().shape == (2, 2)
    one = runs.select(found, {"local_lr": 0.1})
    assert len(ablations.bars(one, "data.dirichlet_omega").axes[0].patches) == 2
    (axis,) = key_lines.key_lines(one, "data.dirichlet_omega").axes
    assert len(axis.containers[0].lines[0].get_xdata()) == 2
    assert len(key_lines.key_lines(found, "local_lr", panel="data.partition").axes) == 2, "but a panel's key does"


def test_titles_stay_within_the_figure() -> None:
    logs = [
        make_log(
            f"own{place}", run__label=f"Our method of a long name, {place}", local_lr=0.1, data__dirichlet_omega=omega
        )
        for place in range(3)
        for omega in (0.1, 1.0)
    ]
    with canvas.using("cvpr-column"), canvas.drawing():
        figure = ablations.heat_map(runs.to_frames(merge(logs)), "algorithm.name", "local_lr")
        figure.settle()
    boxes = [axis.title.get_window_extent() for axis in figure.axes]
    assert [axis.get_title() for axis in figure.axes] == ["MNIST\nω=1.0, S=10", "MNIST\nω=0.1, S=10"]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in boxes)
    assert not any(text.get_visible() for text in figure.axes[1].get_yticklabels()), "said once, at the left"


def test_figures_never_average_different_settings(ablation: runs.Runs) -> None:
    for make in (ablations.bars, figures.key_curves):
        with pytest.raises(UserError, match=r"runs differ in algorithm\.memory_decay too"):
            make(ablation, "algorithm.memory_size")


def test_cost_seeds_and_groups(everyone: runs.Runs) -> None:
    figure = figures.cost_curves(everyone, "gradma")
    over_bytes, over_seconds = figure.axes
    np.testing.assert_allclose(over_bytes.lines[0].get_xdata(), np.arange(1, 11) * 1e6)
    np.testing.assert_allclose(over_seconds.lines[0].get_xdata(), np.arange(1, 11) * 0.5)
    assert over_bytes.get_xlabel() == "Communication (MB)"
    (axis,) = figures.seed_curves(everyone, "gradma").axes
    assert len(axis.lines) == 3 * (2 + 1), "two seeds and their mean"
    assert not axis.collections
    split = figures.accuracy_curves(everyone, split="groups")
    assert [axis.get_title().rpartition(": ")[2] for axis in split.axes] == ["worker", "server", "both"]
    assert "n = 2" in figures.accuracy_curves(everyone, "worker").legends[0].get_title().get_text()
    single = load(*(make_log(name, rounds=10) for name in METHODS))
    (axis,) = figures.accuracy_curves(single, "worker").axes
    assert not axis.collections, "no band of one seed"


def test_ranks_are_drawn(everyone: runs.Runs) -> None:
    with pytest.raises(UserError, match="two methods and two scenarios"):
        rank_figure.rank_diagram(everyone)
    levels = {"fedavg": 0.7, "moon": 0.8, "gradma": 0.9}
    logs = [make_log(name, 0, [level], omega=omega) for name, level in levels.items() for omega in (1.0, 0.1, 0.01)]
    (axis,) = rank_figure.rank_diagram(load(*logs)).axes
    assert {"GradMA (1.0)", "MOON (2.0)", "FedAvg (3.0)"} <= {text.get_text() for text in axis.texts}
    assert rank_figure.groups_within([1.0, 2.0, 2.5, 6.0], 1.5) == [(0, 2)]
    assert rank_figure.groups_within([1.0, 2.0, 3.0, 6.0], 1.5) == [(0, 1), (1, 2)]


def test_partitions_are_those_of_the_runs() -> None:
    options: dict[str, object] = {}  # as every run records it
    logs = [
        make_log(data="digits", omega=omega, num_workers=30, data__partition_options=options) for omega in (9.0, 0.1)
    ]
    figure = partition_figure.partition_bubbles(load(*logs))
    assert [axis.get_title() for axis in figure.axes] == ["digits, ω=9.0, seed 0", "digits, ω=0.1, seed 0"]
    skewed, mild = (len(axis.collections[0].get_offsets()) for axis in (figure.axes[1], figure.axes[0]))
    assert skewed < mild, "with skew, workers have fewer classes"


PLUGIN = """
import numpy as np
from fl_platform import Dataset, Samples

class Cards(Dataset, name="cards_of_a_figure", label="Cards"):
    num_classes, shape, features = 4, (2,), "numbers"

    def load(self, folder):
        samples = Samples.from_arrays(np.zeros((40, 2)), np.arange(40) % 4)
        return samples, samples
"""


def test_a_data_set_of_a_plugin_is_imported_where_the_figure_names_it(tmp_path: Path, monkeypatch) -> None:
    log = load(make_log(data="cards_of_a_figure", omega=9.0, num_workers=5))
    with pytest.raises(UserError, match=r"data.name=cards_of_a_figure is not known"):
        partition_figure.partition_bubbles(log)
    (tmp_path / "cards_of_a_figure.py").write_text(PLUGIN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        figure = partition_figure.partition_bubbles(log, plugins=["cards_of_a_figure"])
        assert sum(len(axis.collections[0].get_offsets()) for axis in figure.axes) > 4
    finally:
        del DATASETS._entries["cards_of_a_figure"]


def test_qp_and_forgetting(everyone: runs.Runs) -> None:
    figure = figures.qp_activity(everyone)
    assert len(figure.axes) == 4
    assert len(figures.forgetting_curves(everyone).axes[0].lines) == 16
    with pytest.raises(UserError, match="qp"):
        figures.qp_activity(load(make_log()))


def test_hostile_names_are_drawn_as_text(tmp_path: Path) -> None:
    name = r"$\frac{1}{0}$ <b> \x1b[31m & _^"
    canvas.save(figures.accuracy_curves(load(make_log(name, data=name)), "all"), tmp_path / "x")
    assert "&lt;b&gt;" in (tmp_path / "x.svg").read_text()


def test_unknown_names_are_refused(everyone: runs.Runs) -> None:
    with pytest.raises(UserError, match="did you mean 'worker'"):
        figures.accuracy_curves(everyone, "workers")
    with pytest.raises(UserError, match="no run has this configuration key"):
        ablations.bars(everyone, "algorithm.memory_size")
    with pytest.raises(UserError, match="no finished run"):
        figures.accuracy_curves(load(make_log(status="crashed")), "all")
