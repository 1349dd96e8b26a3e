"""What every method asks of a device may not grow unseen: kernels, host reads and host-to-device copies.

The bounds are the table of benchmarks/README.md, which ``python -m tests.device.counts --write`` renews; a change that
needs less should renew it. A method that is not in the table yet is held to what its hooks and fields say.
"""

from dataclasses import astuple, replace

import pytest

from fl_platform.algorithms import base
from fl_platform.paper.methods import METHODS
from tests.device.counts import MODELS, Row, bounds, cases, markdown, measure

BOUNDS = bounds()
UNBOUNDED = 1 << 30
CASES = cases()


def bound_of(method: str, model: str) -> Row:
    """The row of the table; for a method without one FedAvg's, with what its hooks may add.

    Kernels of its own hooks are open. A hook of the workers may load the batches of a whole pass, and one of the server
    may read its figures and send indices, once each per round.
    """
    if (method, model) in BOUNDS:
        return BOUNDS[method, model]
    plain, open_kernels = BOUNDS["fedavg", model], {}
    kind = base.get(method)
    if {"local_direction", "local_loss", "adapt_network"} & replaced(kind):
        open_kernels["step_kernels"] = UNBOUNDED
    if {"server_direction", "finish_local", "begin_round", "diagnostics"} & replaced(kind):
        open_kernels["server_kernels"] = UNBOUNDED
    if {"evaluated_params", "also_evaluated"} & replaced(kind):
        open_kernels |= {"evaluation_kernels": UNBOUNDED, "evaluation_reads": plain.evaluation_reads * 4}
    if kind.is_scored_by_workers:  # an evaluation for every worker seen
        names = ("evaluation_kernels", "evaluation_reads", "evaluation_copies")
        open_kernels |= dict.fromkeys(names, UNBOUNDED)
    return replace(
        plain,
        worker_copies=plain.worker_copies + 2,
        server_reads=plain.server_reads + 4,
        server_copies=plain.server_copies + 2,
        **open_kernels,
    )


def replaced(kind: type[base.Algorithm]) -> set[str]:
    """The hooks of a method that are not FedAvg's."""
    return {name for name, value in vars(base.Algorithm).items() if callable(value) and getattr(kind, name) != value}


def test_every_method_of_the_paper_has_its_row():
    assert set(BOUNDS) >= {(method, model) for method in METHODS for model in MODELS}


@pytest.mark.parametrize(("method", "model"), CASES, ids=lambda value: value)
def test_counts_do_not_grow(method, model):
    """``measure`` itself raises where a local step reads or copies."""
    found, bound = measure(method, model), bound_of(method, model)
    assert all(a <= b for a, b in zip(astuple(found)[2:], astuple(bound)[2:], strict=True)), (found, bound)


def test_the_bounds_are_read_from_the_table_as_they_are_written():
    lines = markdown(list(BOUNDS.values())).splitlines()
    assert "| fedavg | mlp |" in lines[2]
    assert len(lines) == 2 + len(BOUNDS)
