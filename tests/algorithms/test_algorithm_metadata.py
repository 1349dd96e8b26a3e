"""What is declared about the methods: the paper's grids, what travels, what a run costs in bytes."""

import math
import re
import sys

import pytest

from fl_platform.algorithms import base
from fl_platform.config.options import walk
from fl_platform.config.schema import known_keys
from fl_platform.paper.methods import METHODS, Group
from fl_platform.runs import metrics
from tests.algorithms.trajectories import ALGORITHMS, run

GRID_SIZES = {
    "fedavg": 9, "moon": 9, "fedmlb": 9, "scaffold": 9, "mifa": 9, "gradma_w": 9,
    "fedavgm": 27, "fedprox": 27, "mifam": 27, "moonm": 27, "fedmlbm": 27, "mimelite": 27,
    "feddyn": 27,  # 9 where server_lr stays at 1, as in the publication
    "fedproxm": 81, "gradma_s": 81, "gradma": 81,
}  # fmt: skip
VALUES = {
    "local_lr": (0.001, 0.01, 0.1),
    "server_lr": (0.1, 1.0, 10.0),
    "mu": (0.001, 0.01, 0.1),
    "alpha": (0.001, 0.01, 0.1),
    "momentum_decay": (0.1, 0.5, 0.9),
    "memory_decay": (0.1, 0.5, 0.9),
}


def grids(name: str) -> dict[str, tuple[float, ...]]:
    """Every tuned hyper-parameter of a method with its grid, the two rates included."""
    options = {key: known_keys()[key] for key in ("local_lr", "server_lr")}
    options |= dict(walk(base.get(name)))
    return {key: field.metadata["grid"] for key, field in options.items() if field.metadata.get("grid")}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_grids_are_the_papers(name):
    found = grids(name)
    assert math.prod(map(len, found.values())) == GRID_SIZES[name]
    assert found == {key: VALUES[key] for key in found}


def test_a_default_lies_in_its_grid():
    for name in base.names():
        for key, field in walk(base.get(name)):
            assert field.metadata["help"], (name, key)
            if field.metadata["grid"]:
                assert field.default in field.metadata["grid"], (name, key)


def test_a_file_opens_with_its_publication_and_lists_departures():
    """References have no publication; the paper's methods follow its text, which their files quote."""
    for name in base.names():
        kind = base.get(name)
        told = sys.modules[kind.__module__].__doc__
        is_reference = kind.group == Group.REFERENCE
        assert is_reference or re.search(r"https://(arxiv\.org/abs/\d{4}\.\d{5}|doi\.org/10\.)", told), name
        assert is_reference or name in METHODS or "Departures: " in told, name
        assert is_reference or kind.equation, name


@pytest.mark.parametrize(
    ("name", "buffers"), [*((name, "average") for name in ALGORITHMS), ("scaffold", "server"), ("moon", "local")]
)
def test_bytes_are_the_vectors_that_travel(name, buffers):
    """d = 239 float32 parameters down and up, twice for Scaffold and MimeLite, and 28 statistics when averaged."""
    multiple = METHODS[name].load
    done = run(name, f"buffers={buffers}", "precision=float32", "num_rounds=2", "local_steps=1")
    statistics = 28 if buffers == "average" else 0
    a_round = 3 * 2 * 4 * (multiple * 239 + statistics)
    assert done.logged(metrics.TOTAL_BYTES) == [a_round, 2 * a_round]


def test_a_worker_that_fails_receives_but_does_not_send():
    args = ("availability.name=bernoulli", "availability.failure_probability=0.4", "num_rounds=6", "buffers=server")
    done = run("scaffold", *args)
    reporting = sum(done.logged(metrics.COHORT_SIZE))
    assert 0 < reporting < 6 * 3
    assert done.logged(metrics.TOTAL_BYTES)[-1] == 8 * 2 * 239 * (6 * 3 + reporting)
