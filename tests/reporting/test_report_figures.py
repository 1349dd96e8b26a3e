"""Figures: deterministic bytes, every kind, honest errors. What they look like was judged by eye."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fl_platform.errors import UserError
from fl_platform.paper.methods import GROUPINGS, METHODS
from fl_platform.reporting import ablations, canvas, figures
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
    assert [line.get_label() for line in curves.lines] == ["memory_size=0", "memory_size=10", "memory_size=100"]


def test_figures_never_average_different_settings(ablation: runs.Runs) -> None:
    for make in (ablations.bars, figures.key_curves):
        with pytest.raises(UserError, match=r"runs differ in algorithm\.memory_decay too"):
            make(ablation, "algorithm.memory_size")


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
