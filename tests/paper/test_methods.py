"""The catalogue of methods: the paper's order, the same facts as the registered classes, styles for every eye."""

import csv
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

import fl_platform.algorithms  # noqa: F401  registers them
from fl_platform import paper
from fl_platform.algorithms import base
from fl_platform.config.registry import ALGORITHMS
from fl_platform.errors import UserError
from fl_platform.paper.methods import FURTHER_GROUPS, GROUPINGS, METHODS, PAPER, Group, order, spelled
from fl_platform.reporting.styles import OWN_STYLES

PRINTED = Path(paper.__file__).parent


def printed(table: str) -> list[dict[str, str]]:
    with open(PRINTED / table, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("table", ["table1.csv", "table2.csv"])
def test_labels_order_and_groups_are_those_of_the_printed_tables(table: str) -> None:
    rows = dict.fromkeys((row["algorithm"], row["group"]) for row in printed(table))
    assert list(rows) == [(method.label, method.group.value) for method in METHODS.values()]


def test_loads_are_those_of_table_2() -> None:
    loads = {row["algorithm"]: int(row["comm_multiple"]) for row in printed("table2.csv")}
    assert loads == {method.label: method.load for method in METHODS.values()}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_what_its_class_says(name: str) -> None:
    registered = base.get(name)
    method = METHODS[name]
    assert (registered.label, registered.kind) == (method.label, method.group)
    assert registered.downloads == registered.uploads == method.load


def test_the_classes_of_the_papers_group_are_its_sixteen() -> None:
    ours = [base.get(name) for name in base.names() if base.get(name).__module__.startswith("fl_platform.")]
    assert {kind.name for kind in ours if kind.group == PAPER} == set(METHODS)
    assert {kind.group for kind in ours} <= {PAPER, *FURTHER_GROUPS} - {Group.PLUGIN}


def test_a_class_outside_the_package_is_a_plugin_unless_it_says_otherwise() -> None:
    with pytest.raises(UserError, match=r"group of algorithm mine=robast is not known; .*robust"):

        class Wrong(base.Algorithm, name="mine"):
            group = "robast"

    class Mine(base.get("fedprox"), name="mine"):  # type: ignore[misc]
        """Its parent is of the paper; it is not."""

    class Sturdy(Mine, name="sturdy"):
        group = "robust"

    try:
        assert (Mine.group, Sturdy.group) == (Group.PLUGIN, "robust")
    finally:
        del ALGORITHMS._entries["mine"], ALGORITHMS._entries["sturdy"]


def test_printed_spellings_name_a_method() -> None:
    assert spelled("GradMA-W") is spelled("gradma_w") is METHODS["gradma_w"]
    assert [spelled(method.label) for method in METHODS.values()] == list(METHODS.values())
    with pytest.raises(UserError, match=r"method=GradMA-X is not known; allowed: .*gradma"):
        spelled("GradMA-X")


def test_others_follow_the_papers_methods_by_name() -> None:
    assert sorted(["zeta", "gradma", "alpha", "fedavg"], key=order) == ["fedavg", "gradma", "alpha", "zeta"]


def test_fedavg_is_compared_with_every_block_and_contests_with_the_workers() -> None:
    assert all(GROUPINGS[side][0] == "fedavg" for side in ("worker", "server", "both"))
    assert sorted(itertools.chain(*(GROUPINGS[side][1:] for side in ("worker", "server", "both")))) == sorted(
        set(METHODS) - {"fedavg"}
    )
    assert METHODS["fedavg"].contest == Group.WORKER


def distance(first: str, second: str, matrix: tuple[tuple[float, ...], ...]) -> float:
    """Euclidean distance in sRGB after a simulated colour vision."""
    seen = []
    for color in (first, second):
        channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        seen.append([sum(weight * channel for weight, channel in zip(row, channels, strict=True)) for row in matrix])
    return sum((a - b) ** 2 for a, b in zip(*seen, strict=True)) ** 0.5


EYES = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deutan": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
}


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_colours_of_a_figure_differ_for_every_eye_and_from_those_of_other_methods(grouping: str, eye: str) -> None:
    colors = [METHODS[name].style.color for name in GROUPINGS[grouping]] + sorted({s.color for s in OWN_STYLES})
    assert min(distance(a, b, EYES[eye]) for a, b in itertools.combinations(colors, 2)) > 0.12


def test_styles_are_unique() -> None:
    styles = [*(method.style for method in METHODS.values()), *OWN_STYLES]
    assert len({(style.color, style.dashes) for style in styles}) == len(styles)


def test_the_catalogue_imports_no_heavy_package() -> None:
    modules = [f"fl_platform.paper.{path.stem}" for path in PRINTED.glob("*.py")]
    heavy = ("torch", "lightning", "matplotlib", "wandb")
    code = f"import sys, {', '.join(modules)}\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
