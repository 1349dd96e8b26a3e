"""``list``: what a configuration may name, in groups, filtered."""

import re

import pytest

from fl_platform.cli import main
from fl_platform.paper.methods import FURTHER_GROUPS, METHODS, PAPER


def listed(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[list[str], list[str]]:
    """Headings and the names below them, hyper-parameters left out."""
    assert main(["list", *args]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line and not line.startswith(" ")]
    headings = [line[:-1] for line in lines if line.endswith(":")]
    return headings, [line.split()[0] for line in lines if not line.endswith(":")]


def test_the_papers_methods_come_first_in_its_order(capsys: pytest.CaptureFixture[str]) -> None:
    headings, names = listed(capsys, "algorithms")
    order = [PAPER, *FURTHER_GROUPS]
    assert headings == sorted(headings, key=order.index)
    assert names[: len(METHODS)] == list(METHODS)


def test_groups_and_text_narrow_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, "algorithms", "--group", "paper") == (["paper"], list(METHODS))
    assert listed(capsys, "algorithms", "--grep", "CONTRASTIVE")[1] == ["moon", "moonm"]  # in a hyper-parameter
    assert listed(capsys, "models", "--grep", "LeNet")[1] == ["lenet5"]
    assert listed(capsys, "algorithms", "--grep", "no such words") == ([], [])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["algorithms", "--group", "papr"], "--group=papr is not known; allowed: .* did you mean 'paper'"),
        (["models", "--group", "paper"], "--group=paper is for algorithms; models have no groups"),
    ],
)
def test_bad_groups_are_one_sentence(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *args]) == 2
    assert re.search(message, capsys.readouterr().err)
