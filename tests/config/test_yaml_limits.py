"""The limits of YAML are the documented ones."""

from pathlib import Path

import pytest

from fl_platform.config.compose import read_yaml
from fl_platform.config.yaml_limits import LONGEST_YAML, MOST_VALUES, check_size
from fl_platform.errors import UserError

DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"


def test_the_document_states_them() -> None:
    text = " ".join(DOCUMENT.read_text(encoding="utf-8").split())
    assert f"up to {LONGEST_YAML:,} characters" in text
    assert f"and {MOST_VALUES:,} values after its aliases are written out" in text


def test_a_file_with_more_values_than_omegaconf_allows_by_itself_is_read(tmp_path: Path) -> None:
    path = tmp_path / "many.yaml"
    path.write_text(f"a: [{'1,' * 10_500}1]")
    assert len(read_yaml(path, "x")["a"]) == 10_501


def test_values_are_counted_with_aliases_and_without() -> None:
    check_size(f"a: [{'1,' * (MOST_VALUES - 10)}1]")
    thousand = f"a: &a [{'1,' * 999}1]\n"
    check_size(f"{thousand}b: [{'*a,' * 190}1]")
    for text in (f"a: [{'1,' * MOST_VALUES}1]", f"{thousand}b: [{'*a,' * 200}1]"):
        with pytest.raises(UserError, match=f"more than {MOST_VALUES} values"):
            check_size(text)
