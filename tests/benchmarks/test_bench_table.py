"""Figures as text, JSON and Markdown."""

import json
import math

import pytest

from benchmarks.clock import Ratio
from benchmarks.table import BEGIN, END, Entry, as_text, refresh, write_json
from fl_platform.errors import UserError

REACHED = Entry("fast", Ratio(1.2, 1.1), "x bound", "<= 1.3")
MISSED = Entry("slow", Ratio(30.0), "x faster", ">= 50", ("the Gram matrix 9 us",))
REPORTED = Entry("seen", Ratio(5.0), "MB")


def test_verdicts():
    assert [REACHED.ok, MISSED.ok, REPORTED.ok] == [True, False, None]
    assert Entry("edge", Ratio(1.3), "x", "<= 1.3").ok is True
    assert Entry("lost", Ratio(math.nan), "x", "<= 1.3").ok is False


def test_json_has_the_named_keys_and_cpu_time_on_its_own(tmp_path):
    write_json([REACHED, MISSED, Entry("lost", Ratio(math.nan), "not measured")], tmp_path / "bench.json")
    records = json.loads((tmp_path / "bench.json").read_text())
    assert all(set(record) == {"name", "value", "unit", "reach", "ok"} for record in records)
    assert [(r["name"], r["value"], r["ok"]) for r in records] == [
        ("fast", 1.2, True),
        ("fast_cpu_time", 1.1, None),
        ("slow", 30.0, False),
        ("lost", None, None),
    ]


def test_text_explains_what_was_missed():
    text = as_text([REACHED, MISSED, REPORTED])
    assert "<= 1.3" in text
    assert "slow:\n  the Gram matrix 9 us" in text


def test_a_readme_is_refreshed_between_its_marks(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        refresh(readme, [REACHED, MISSED], {"processor": "two cores"})
        text = readme.read_text()
        assert text.startswith("before\n")
        assert text.endswith(f"{END}\nafter\n")
        assert "old" not in text
        assert text.count("| fast | 1.2 | 1.1 | x bound | <= 1.3 | yes |") == 1
        assert "- processor: two cores" in text


def test_files_that_cannot_be_written_are_named(tmp_path):
    with pytest.raises(UserError, match=r"README.md.*--write"):
        refresh(tmp_path / "README.md", [], {})
    (tmp_path / "README.md").write_text("no marks")
    with pytest.raises(UserError, match="between"):
        refresh(tmp_path / "README.md", [], {})
    with pytest.raises(UserError, match=r"--json .*bench.json"):
        write_json([], tmp_path / "nowhere" / "bench.json")
