"""What all figures share."""

import matplotlib as mpl
import pytest

from fl_platform.reporting import canvas


@pytest.mark.parametrize("count", [1, 7, 16, 40])
def test_every_name_of_the_legend_lies_inside_the_figure(count, tmp_path):
    with mpl.rc_context(canvas.STYLE):
        figure, axes = canvas.panels(1)
        for number in range(count):
            axes[0].plot([0, 1], [number, number], label=f"method {number}")
        canvas.legend(figure, axes)
    canvas.save(figure, tmp_path / "figure")
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.y0 < box.y1 <= figure.bbox.height
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
