"""The architecture picture is what the source says."""

from pathlib import Path

from tools import architecture

ROOT = Path(__file__).resolve().parents[2]


def test_the_committed_picture_is_current() -> None:
    drawn = (ROOT / architecture.PICTURE).read_text(encoding="utf-8")
    assert drawn == architecture.picture(), "run `make docs`"


def test_every_arrow_points_down_and_implied_ones_are_left_out() -> None:
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": {"c"}}
    row = architecture.rows(graph)
    assert row == {"c": 0, "b": 1, "a": 2, "d": 1}
    assert architecture.reduced(graph) == {"a": {"b"}, "b": {"c"}, "c": set(), "d": {"c"}}


def test_every_package_says_what_it_is() -> None:
    assert len(architecture.packages()) > 10
    assert [name for name in architecture.packages() if not architecture.description(name)] == []
