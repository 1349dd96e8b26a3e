"""The paper's numbers through our own layout: order, headers, bold marks."""

from fl_platform.paper import tables as paper_tables
from fl_platform.paper.style import ALGORITHMS, GROUPINGS, PAPER_SCENARIOS, Scenario, algorithm_style, normal
from fl_platform.reporting.layout import layout, scenario_header


def as_cells(frame, score):
    own = frame[[scenario.key in PAPER_SCENARIOS for scenario in frame["scenario"]]]
    names = own["algorithm"].map(lambda name: algorithm_style(name).label)
    return own.assign(name=names, text=own[score.name].astype(str), score=score[own.index])


def test_both_tables_are_complete() -> None:
    for frame in (paper_tables.table1(), paper_tables.table2()):
        own = frame[[scenario.key in PAPER_SCENARIOS for scenario in frame["scenario"]]]
        assert len(own) == 16 * 14
        assert set(own["algorithm"]) == set(ALGORITHMS)
        assert {scenario.key for scenario in own["scenario"]} == set(PAPER_SCENARIOS)
    assert paper_tables.table2()["rounds"].isna().sum() > 0
    assert paper_tables.targets()[("mnist", "0.01", 10)] == 0.45
    assert paper_tables.targets()[("cifar100", "0.1", 5)] == paper_tables.targets()[("cifar100", "1.0", 5)] == 0.3


def test_table1_bold_marks_are_the_papers() -> None:
    frame = paper_tables.table1()
    numbers = as_cells(frame, frame["mean"])
    table = layout("Table 1", numbers, [])
    scenarios = sorted(set(numbers["scenario"]), key=Scenario.order)
    printed = {
        (normal(row.label), scenario): cell.is_bold
        for block in table.blocks
        for row in block
        for scenario, cell in zip(scenarios, row.cells, strict=True)
    }
    bold = dict(zip(zip(numbers["algorithm"], numbers["scenario"], strict=True), numbers["bold"] == 1, strict=True))
    assert printed == bold
    assert sum(printed.values()) == 42
    assert [row.label for block in table.blocks for row in block] == [style.label for style in ALGORITHMS.values()]
    assert [len(block) for block in table.blocks] == [1, 5, 4, 6]


def test_table2_bold_marks_are_the_group_minima() -> None:
    frame = paper_tables.table2()
    numbers = as_cells(frame, frame["rounds"]).assign(score=-frame["rounds"])
    table = layout("Table 2", numbers, [], show_load=True)
    rows = {row.label: row for block in table.blocks for row in block}
    columns = sorted(set(numbers["scenario"]), key=Scenario.order)
    place = [scenario.key for scenario in columns].index(("tinyimagenet", "1.0", 5))
    assert rows["FedMLB"].cells[place].is_bold  # the paper's one slip: it marks GradMA-W
    assert not rows["GradMA-W"].cells[place].is_bold
    assert {"Scaffold (2\u00d7)", "MimeLite (2\u00d7)"} <= set(rows)


def test_header_is_the_papers() -> None:
    upper, lower = scenario_header([Scenario(*key) for key in PAPER_SCENARIOS])
    assert upper == (
        ("MNIST, S=10", 3),
        ("MNIST, ω=0.01", 2),
        ("CIFAR-10, S=10", 3),
        ("CIFAR-100, ω=0.1", 3),
        ("Tiny-ImageNet, (ω, S)", 3),
    )
    assert [text for text, _ in lower[:5]] == ["ω=1.0", "ω=0.1", "ω=0.01", "S=5", "S=50"]
    assert [text for text, _ in lower[-3:]] == ["(0.01, 5)", "(1.0, 5)", "(1.0, 10)"]


def distance(first: str, second: str, matrix) -> float:
    """Euclidean distance in sRGB after a simulated colour vision."""
    seen = []
    for color in (first, second):
        channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        seen.append([sum(weight * channel for weight, channel in zip(row, channels, strict=True)) for row in matrix])
    return sum((a - b) ** 2 for a, b in zip(*seen, strict=True)) ** 0.5


def test_styles_are_unique_and_distinct_for_every_eye() -> None:
    looks = [(style.color, style.dashes, style.marker) for style in ALGORITHMS.values()]
    assert len(set(looks)) == 16
    normal_eye = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    protan = ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052))
    deutan = ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969))
    for members in GROUPINGS.values():
        colors = [ALGORITHMS[name].color for name in members]
        for eye in (normal_eye, protan, deutan):
            assert min(distance(a, b, eye) for a in colors for b in colors if a != b) > 0.12
        assert len(set(colors)) == len(colors)
