"""What every method asks of a device does not change unseen: kernels, host reads and host-to-device copies.

The numbers are those of the table in benchmarks/README.md; ``python -m tests.device.counts --write`` renews it.
"""

import pytest

from fl_platform.algorithms import base
from tests.device.counts import MODELS, markdown, measure, phases, step_kernels, table

TABLE = table()
FEW = ("fedavg", "fedmlb", "gradma", "moon")  # on the two large networks, of which --torture counts all methods


def test_every_method_has_its_row():
    assert set(TABLE) == set(base.names())
    assert all(tuple(row.steps) == MODELS for row in TABLE.values())


@pytest.mark.parametrize("method", base.names())
def test_counts_are_those_of_the_table(method):
    """A local step that reads or copies raises."""
    found, expected = measure(method, MODELS[:2]), TABLE[method]
    assert found.steps.items() <= expected.steps.items()
    assert (found.workers, found.server, found.evaluation) == (expected.workers, expected.server, expected.evaluation)


@pytest.mark.parametrize("model", MODELS[2:])
def test_local_steps_of_large_networks(model, scale):
    for method in scale(FEW, base.names()):
        assert step_kernels(phases(method, model)) == TABLE[method].steps[model], method


def test_the_table_is_read_as_it_is_written():
    lines = markdown(list(TABLE.values())).splitlines()
    assert lines[2].startswith(f"| {next(iter(TABLE))} |")
    assert len(lines) == 2 + len(TABLE)
