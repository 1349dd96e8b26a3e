"""The limits of YAML are the documented ones."""

from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.config.compose import read_yaml
from fl_platform.config.yaml_limits import LONGEST_NUMBER, LONGEST_YAML, MOST_VALUES, check_size
from fl_platform.errors import UserError
from fl_platform.runs.reader import read_directory

DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"


def test_the_document_states_them() -> None:
    text = " ".join(DOCUMENT.read_text(encoding="utf-8").split())
    assert f"up to {LONGEST_YAML:,} characters" in text
    assert f"numbers of {LONGEST_NUMBER:,} digits" in text
    assert f"and {MOST_VALUES:,} values after its aliases are written out" in text


@pytest.mark.parametrize(
    "number", ["0x" + "f" * 6000, "1" + ":59" * 4000, "0b" + "1" * 20_000, "1_" * 5000, "9" * 5000]
)
def test_a_number_that_python_cannot_print_is_refused(number: str, tmp_path: Path, capsys) -> None:
    assert main(["config", f"seed={number}"]) == 2
    (tmp_path / "run" / "attempts" / "0001").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text(f"seed: {number}\ntracking: {{tags: [{number}]}}\n")
    assert "config.yaml is missing or cannot be read" in read_directory(tmp_path / "run").warnings[0]


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
