"""The paper's numbers through our own layout: order, headers, bold marks."""

from fl_platform.paper import tables as paper_tables
from fl_platform.paper.methods import METHODS, spelled
from fl_platform.paper.scenarios import COLUMNS, PAPER_SCENARIOS, Scenario
from fl_platform.reporting.layout import layout, scenario_header


def as_cells(frame, score):
    own = frame[[scenario in PAPER_SCENARIOS for scenario in frame["scenario"]]]
    methods = own["algorithm"].map(METHODS)
    return own.assign(method=methods, text=own[score.name].astype(str), score=score[own.index], n=3)


def test_both_tables_are_complete() -> None:
    for frame in (paper_tables.table1(), paper_tables.table2()):
        own = frame[[scenario in PAPER_SCENARIOS for scenario in frame["scenario"]]]
        assert len(own) == 16 * 14
        assert set(own["algorithm"]) == set(METHODS)
        assert set(own["scenario"]) == set(PAPER_SCENARIOS)
    assert paper_tables.table2()["rounds"].isna().sum() > 0


def test_targets_are_those_of_the_columns() -> None:
    targets = paper_tables.targets()
    assert {column.scenario: column.target for column in COLUMNS.values()}.items() <= targets.items()
    assert targets[Scenario("cifar100", "0.1", 5)] == targets[Scenario("cifar100", "1.0", 5)] == 0.3


def test_table1_bold_marks_are_the_papers() -> None:
    frame = paper_tables.table1()
    numbers = as_cells(frame, frame["mean"])
    table = layout("Table 1", numbers, [])
    scenarios = sorted(set(numbers["scenario"]), key=Scenario.order)
    printed = {
        (spelled(row.label).name, scenario): cell.is_bold
        for block in table.blocks
        for row in block
        for scenario, cell in zip(scenarios, row.cells, strict=True)
    }
    bold = dict(zip(zip(numbers["algorithm"], numbers["scenario"], strict=True), numbers["bold"] == 1, strict=True))
    assert printed == bold
    assert sum(printed.values()) == 42
    assert [row.label for block in table.blocks for row in block] == [method.label for method in METHODS.values()]
    assert [len(block) for block in table.blocks] == [1, 5, 4, 6]


def test_table2_bold_marks_are_the_group_minima() -> None:
    frame = paper_tables.table2()
    numbers = as_cells(frame, frame["rounds"]).assign(score=-frame["rounds"])
    table = layout("Table 2", numbers, [], show_load=True)
    rows = {row.label: row for block in table.blocks for row in block}
    columns = sorted(set(numbers["scenario"]), key=Scenario.order)
    place = columns.index(Scenario("tiny_imagenet", "1.0", 5))
    assert rows["FedMLB"].cells[place].is_bold  # the paper's one slip: it marks GradMA-W
    assert not rows["GradMA-W"].cells[place].is_bold
    assert {"Scaffold (2\u00d7)", "MimeLite (2\u00d7)"} <= set(rows)


def test_header_is_the_papers() -> None:
    upper, lower = scenario_header(list(PAPER_SCENARIOS))
    assert upper == (
        ("MNIST, S=10", 3),
        ("MNIST, ω=0.01", 2),
        ("CIFAR-10, S=10", 3),
        ("CIFAR-100, ω=0.1", 3),
        ("Tiny-ImageNet, (ω, S)", 3),
    )
    assert [text for text, _ in lower[:5]] == ["ω=1.0", "ω=0.1", "ω=0.01", "S=5", "S=50"]
    assert [text for text, _ in lower[-3:]] == ["(0.01, 5)", "(1.0, 5)", "(1.0, 10)"]
