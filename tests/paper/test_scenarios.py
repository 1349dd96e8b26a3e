"""The fourteen columns, and the titles of scenarios that are not of the paper."""

import dataclasses

import pytest

from fl_platform.config.compose import compose
from fl_platform.data import datasets
from fl_platform.errors import UserError
from fl_platform.paper.scenarios import COLUMNS, DATA_LABELS, PAPER_SCENARIOS, Scenario, data_named, scenario_values


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_sets_the_keys_of_its_name(name: str) -> None:
    column = COLUMNS[name]
    assert name == column.name == f"{column.data}_w{column.omega:g}_s{column.cohort_size}"
    config = compose([f"scenario={name}"])
    assert (config.data.name, config.data.dirichlet_omega) == (column.data, column.omega)
    assert (config.cohort_size, config.num_rounds, config.model.name) == (
        column.cohort_size,
        column.num_rounds,
        column.model,
    )
    assert config.evaluation.targets == [column.target]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_what_its_data_set_has_by_default(name: str) -> None:
    column, data = COLUMNS[name], datasets.get(COLUMNS[name].data)
    assert (column.model, column.num_rounds, column.evaluation_every) == (
        data.default_model,
        data.num_rounds,
        data.evaluation_every,
    )
    assert column.target in data.targets
    assert column.scenario.data_label == data.label


def test_scenarios_of_the_paper_come_first_and_in_its_order() -> None:
    others = [
        Scenario("digits", "iid", 10),
        Scenario("mnist", "0.5", 10),
        Scenario("mnist", "2.0", 10),
        Scenario("cifar10", "shards", 5),
    ]
    assert sorted([*others, *reversed(PAPER_SCENARIOS)], key=Scenario.order) == [
        *PAPER_SCENARIOS,
        others[2],
        others[1],
        others[3],
        others[0],
    ]


def test_a_title_of_another_data_set_is_the_one_it_was_given() -> None:
    own = Scenario("birds", "0.3", 7, data_label="Birds of Europe")
    assert own.label == "Birds of Europe, ω=0.3, S=7"
    assert own == dataclasses.replace(own, data_label="")  # the label does not make another scenario
    assert Scenario("birds", "iid", 7).label == "birds, iid, S=7"
    assert Scenario("mnist", "1e-05", 7, data_label="something else").label == "MNIST, ω=1e-05, S=7"


def test_printed_spellings_name_a_data_set() -> None:
    assert [data_named(label) for label in DATA_LABELS.values()] == list(DATA_LABELS)
    assert data_named("Tiny-Imagenet") == "tiny_imagenet"
    with pytest.raises(UserError, match="data set=SVHN is not known"):
        data_named("SVHN")


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(UserError, match=r"did you mean 'mnist_w0\.1_s10'"):
        scenario_values("mnist_w0.1_s100")
