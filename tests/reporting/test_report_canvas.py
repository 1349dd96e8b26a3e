"""What all figures share: sizes and fonts of styles, legends, labels, ranges."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib.figure import Figure

from fl_platform.config.registry import ALGORITHMS
from fl_platform.config.schema import known_keys
from fl_platform.errors import UserError
from fl_platform.reporting import canvas, curve_panels, panel_text, ranges
from fl_platform.reporting.curves import Curve
from fl_platform.reporting.symbols import NAMES, QUANTITIES, SYMBOLS

ROOT = Path(__file__).resolve().parents[2]


def curve(values: list[float]) -> Curve:
    mean = np.array(values, dtype=float)
    nothing = np.full(len(mean), np.nan)
    return Curve(np.arange(1.0, len(mean) + 1), mean, nothing, nothing, np.ones(len(mean)))


def drawn(*lines: list[float]) -> list[ranges.Drawn]:
    return [ranges.Drawn(f"line {place}", "#000000", curve(line)) for place, line in enumerate(lines)]


@pytest.mark.parametrize("style", canvas.STYLES)
@pytest.mark.parametrize(("count", "num_panels"), [(1, 1), (16, 1), (45, 1), (16, 5)])
def test_every_name_of_the_legend_lies_inside_the_figure(style, count, num_panels, tmp_path):
    with canvas.using(style), canvas.drawing():
        figure, axes = canvas.panels(num_panels)
        for number in range(count):
            axes[0].plot([0, 1], [number, number], label=f"method {number}")
        canvas.legend(figure, axes, "Mean over seeds, n = 3")
    canvas.save(figure, tmp_path / "figure", ("pdf",))
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.y0 < box.y1 <= figure.bbox.height
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    if num_panels == 5:  # in the empty sixth cell if it fits there, over no panel
        assert not any(axis.get_tightbbox().overlaps(box.padded(-1)) for axis in axes)


@pytest.mark.parametrize(("style", "inches"), [("cvpr-column", 3.25), ("cvpr-page", 6.875), ("slides", 10.0)])
def test_styles_have_the_width_of_print_and_embed_their_font(style, inches, tmp_path):
    with canvas.using(style), canvas.drawing() as look:
        figure, axes = canvas.panels(3)
        axes[0].set_xlabel(canvas.key_label("algorithm.momentum_decay"))
    (path,) = canvas.save(figure, tmp_path / "figure", ("pdf",))
    assert figure.get_figwidth() == inches
    assert axes[0].xaxis.label.get_size() == look.font_size
    content = path.read_bytes()
    assert f"/MediaBox [ 0 0 {inches * 72:g}".encode() in content
    assert b"/FontFile2" in content, "a whole TrueType font"
    assert (b"STIX" in content) == look.is_serif
    assert not isinstance(figure, Figure) or figure.look is look


def test_labels_are_symbols_or_names_and_data_stays_text():
    assert canvas.key_label("algorithm.momentum_decay") == r"$\beta_1$"
    assert canvas.key_label("memory.policy") == "Eviction policy", "an earlier name of the key"
    assert canvas.setting("algorithm.memory_size", "20") == "$m$ = 20"
    assert canvas.setting("own.key_one", "2") == "key one = 2"
    assert canvas.setting("faults.probability", "0.2") == "Share of faulty workers = 0.2"
    assert canvas.setting("faults.kind", "alie") == "alie"
    assert canvas.label("a $x$") == r"a \$x\$"
    assert canvas.label("日 é µ") == "[U+65E5] é µ", "no font that matplotlib brings along has the first"
    long = "a method with a long name that goes on and on, variant "
    assert canvas.label(f"{long}1") != canvas.label(f"{long}2")
    with pytest.raises(UserError, match="did you mean 'cvpr-page'"):
        canvas.check_style("cvpr-pag")


def test_every_option_that_can_be_an_axis_has_a_symbol_or_a_name():
    """Numbers, choices and switches that say which experiment a run is; circumstances of a run are no axes."""
    fields = {key: field for key, field in known_keys().items() if field.type is not dict}
    for name in ALGORITHMS.names():
        fields |= {f"algorithm.{key}": field for key, field in ALGORITHMS.describe(name).options.items()}
    plain = {bool, int, float, str, bool | None, int | None, float | None, str | None}
    wanted = {
        key
        for key, field in fields.items()
        if field.type in plain and field.metadata.get("identity", True) and key != "data.partition_sha256"
    }
    assert len(wanted) > 80
    assert wanted - {*SYMBOLS, *NAMES, *QUANTITIES} == set()
    assert not {*SYMBOLS} & {*NAMES} | {*NAMES} & {*QUANTITIES} | {*SYMBOLS} & {*QUANTITIES}
    for path in (ROOT / "sweeps").glob("*.yaml"):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        swept = {key for key, spec in content.get("parameters", {}).items() if "values" in spec} - {"point"}
        assert swept <= {*SYMBOLS, *NAMES, *QUANTITIES}, path


def test_the_axis_shows_where_the_curves_are():
    with canvas.drawing():
        _, (axis,) = canvas.panels(1)
        ranges.fit_range(axis, drawn([10, *[90 + place / 10 for place in range(30)]]), metric_is_rising=True)
        assert 85 < axis.get_ylim()[0] < 91, "the first rise may leave the axis"
        ranges.fit_range(axis, drawn([0.0] * 30), metric_is_rising=False)
        assert axis.get_ylim() == (-1.0, 1.0), "zero throughout is a line in the middle"
        ranges.fit_range(axis, drawn([1e-12, 3e-12]), metric_is_rising=False)
        assert axis.get_ylim()[1] - axis.get_ylim()[0] > 1e-3, "round-off is not blown up"


def test_an_inset_shows_curves_that_end_close_together():
    close = [[50 + 48 * (1 - 0.7**place) + shift / 10 for place in range(60)] for shift in range(6)]
    apart = [[50 + shift * 8 for _ in range(60)] for shift in range(6)]
    short = [*close[:5], close[5][:30]]  # over seconds, methods end at different places
    for lines, is_shown in ((close, True), (apart, False), (close[:3], False), (short, False)):
        with canvas.drawing():
            _, (axis,) = canvas.panels(1)
            ranges.fit_range(axis, drawn(*lines), metric_is_rising=False)
            axis.set_xlim(1, 60)
            assert (ranges.add_inset(axis, drawn(*lines)) is not None) == is_shown


def test_lines_are_labelled_at_their_ends_where_the_labels_fit():
    ended_early = ([1, 2, 3, 4], [1, 8])
    for lines, is_labelled in ((([1, 2], [1, 8]), True), (([1, 2], [1, 2.1], [1, 9]), False), (ended_early, False)):
        with canvas.drawing():
            _, (axis,) = canvas.panels(1)
            axis.set(xlim=(1, max(map(len, lines))), ylim=(0, 10))
            assert ranges.label_ends([axis], [drawn(*map(list, lines))], 2.0) == is_labelled
            assert len(axis.texts) == (len(lines) if is_labelled else 0)


def test_axes_are_named_at_the_left_of_rows_and_at_the_bottom_of_columns():
    with canvas.drawing():
        figure, axes = canvas.panels(11, 3)  # four rows
        for axis in axes:
            axis.set(xlabel="Round", ylabel="Accuracy")
        panel_text.share_labels(figure, axes)
        assert [place for place, axis in enumerate(axes) if axis.get_xlabel()] == [8, 9, 10]
        assert [place for place, axis in enumerate(axes) if axis.get_ylabel()] == [0, 3, 6, 9]


@pytest.mark.parametrize(
    ("count", "most", "columns"), [(2, 3, 2), (3, 3, 3), (4, 3, 2), (6, 4, 3), (5, 3, 3), (4, 1, 1)]
)
def test_panels_of_a_scenario_fill_whole_rows(count, most, columns):
    assert curve_panels.columns_for(count, most) == columns
