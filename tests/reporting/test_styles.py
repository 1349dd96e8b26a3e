"""Methods that are not of the paper: their label, their group and a style of their own, in tables and figures."""

import subprocess
import sys
from pathlib import Path

import pytest

from fl_platform.paper.methods import METHODS, Group
from fl_platform.reporting import figures, tables
from fl_platform.reporting.styles import OWN_STYLES, distinct, method_of, methods_in, shortened
from fl_platform.runs import frames as runs
from fl_platform.runs.record import RunRecord, merge
from tests.synthetic_logs import make_log

PLUGIN = '''
from dataclasses import dataclass
from fl_platform import Algorithm

@dataclass(eq=False)
class Halved(Algorithm, name="halved", label="Half-Avg"):
    """Server steps of half the length."""
    kind = "server"

    def server_direction(self, updates):
        return updates.mean_delta / 2
'''


def load(*logs: RunRecord) -> runs.Runs:
    return runs.to_frames(merge(logs))


def test_a_method_is_called_by_its_label_else_by_its_name() -> None:
    assert method_of("mine", "Mine++", "robust").label == "Mine++"
    assert method_of("mine", "Mine++", "robust").group == Group.ROBUST
    assert (method_of("mine").label, method_of("mine").group) == ("mine", Group.PLUGIN)
    assert method_of("mine", float("nan"), "worker").group == Group.PLUGIN  # a block of the paper's own
    assert method_of("fedavg", "something else", "server") is METHODS["fedavg"]


def test_a_style_follows_from_the_name_alone() -> None:
    assert method_of("mine").style == method_of("mine", "Mine++", "worker").style
    assert len({method_of(f"method{number}").style for number in range(300)}) == len(OWN_STYLES)


@pytest.mark.parametrize("count", [2, 5, 40])
def test_no_two_methods_of_a_figure_look_alike(count: int) -> None:
    found = distinct([*METHODS.values(), *(method_of(f"method{number}") for number in range(count))])
    styles = {(method.style.color, method.style.dashes) for method in found.values()}
    assert len(styles) == len(METHODS) + count
    own = {method.style.color for name, method in found.items() if name not in METHODS}
    assert len(own) == min(count, 5)
    assert not own & {method.style.color for method in METHODS.values()}
    assert {name: found[name] for name in METHODS} == METHODS


def test_labels_differ_also_where_figures_cut_them() -> None:
    labels = [f"the same long beginning of a label {middle} and the same long end of it" for middle in "ab"]
    found = distinct(method_of(f"method{place}", label) for place, label in enumerate(labels))
    assert len({shortened(method.label) for method in found.values()}) == 2


@pytest.mark.parametrize("count", [6, 12])
def test_colours_do_not_repeat_while_there_are_free_ones(count: int) -> None:
    given = [METHODS["fedavg"], *(method_of(f"method{number}") for number in range(count))]
    found = distinct(given)
    assert len({method.style.color for method in found.values()}) == 1 + count
    assert found == distinct(reversed(given)), "the order of the runs does not matter"
    assert distinct([found["fedavg"], found["method5"]])["method5"] == given[6], "a few of them have their own styles"


def test_no_two_methods_have_one_label() -> None:
    given = [method_of("copy", "FedAvg"), method_of("a", "Same"), method_of("b", "Same"), METHODS["fedavg"]]
    assert [method.label for method in distinct(given).values()] == ["FedAvg", "Same", "Same (b)", "FedAvg (copy)"]


def test_a_recorded_label_counts_for_runs_without_one() -> None:
    both = load(make_log("mine", 0), make_log("mine", 1, run__label="Mine++"))
    assert methods_in(both.runs)["mine"].label == "Mine++"
    assert methods_in(load(make_log("mine")).runs)["mine"].label == "mine"


def test_tables_and_figures_show_it_in_its_group() -> None:
    group = {"run__label": "Mine++", "run__method_group": "worker correction"}
    own = [make_log("mine", seed, **group, level=0.9) for seed in range(2)]
    bare = [make_log("bare", seed) for seed in range(2)]
    everyone = load(*own, *bare, *(make_log(name, seed) for name in ("fedavg", "mifa") for seed in range(2)))
    table = tables.statistic_table(everyone)
    assert [[row.label for row in block] for block in table.blocks] == [["FedAvg"], ["MIFA"], ["Mine++"], ["bare"]]
    assert not any(block[0].cells[0].is_bold for block in table.blocks)  # each is alone in its group
    assert "mine" in set(table.numbers["algorithm"])
    drawn = {}
    for grouping in ("worker", "server", "worker correction", "plugin", "all"):
        (axis,) = figures.accuracy_curves(everyone, grouping).axes
        drawn[grouping] = [line.get_label() for line in axis.lines]
    assert drawn == {
        "worker": ["FedAvg"],
        "server": ["FedAvg", "MIFA"],
        "worker correction": ["FedAvg", "Mine++"],
        "plugin": ["FedAvg", "bare"],
        "all": ["FedAvg", "MIFA", "bare", "Mine++"],
    }


def test_titles_of_other_data_sets_are_those_the_runs_recorded() -> None:
    table = tables.statistic_table(load(make_log(data="birds", run__data_label="Birds of Europe")))
    assert table.header[0][0][0] == "Birds of Europe, S=10"


def test_the_label_of_a_plugin_travels_with_its_run(tmp_path: Path) -> None:
    """The run imports the plugin; the report, in a process that cannot, shows its label and group."""
    (tmp_path / "halving.py").write_text(PLUGIN, encoding="utf-8")
    args = ["plugins=[halving]", "algorithm.name=halved", "data.name=digits", "num_rounds=2", "local_steps=1"]
    run = [sys.executable, "-m", "fl_platform", "run", *args, "tracking.mode=offline"]
    subprocess.run(run, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "halving.py").unlink()
    table = tables.statistic_table(runs.load([tmp_path / "runs"]))
    assert [[row.label for row in block] for block in table.blocks] == [["Half-Avg"]]
    (method,) = methods_in(runs.load([tmp_path / "runs"]).runs).values()
    assert method.group == Group.PLUGIN
    assert table.header[0][0][0] == "Digits, S=10"
