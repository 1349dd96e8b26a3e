"""Every method on a device that is not the CPU: what it asks of the device, that it agrees with the CPU, and goes on.

The numbers are those of the table in benchmarks/README.md; ``python -m tests.device.counts --write`` renews it.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from fl_platform.algorithms import base
from fl_platform.runs import metrics
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from tests.device import counts
from tests.device.counts import MODELS, config_of, markdown, row_of, step_kernels, table
from tests.device.runs import CPU, DEVICE, PROJECTING, Phases, counted, distance, run_on
from tests.federations import Finished

TABLE = table()
FEW = ("fedavg", "fedmlb", "gradma", "moon")  # on the two large networks, of which --torture counts all methods
FLOAT32 = 2.0**-23


@dataclass(frozen=True)
class Method:
    """Two rounds of a method with BatchNorm on the device, in float32."""

    name: str
    done: Finished
    phases: Phases  # of the second round
    checkpoints: Path  # one after each round


@pytest.fixture(scope="module", params=base.names())
def method(request, tmp_path_factory) -> Method:
    place = tmp_path_factory.mktemp(request.param)
    return Method(request.param, *counts.run(request.param, checkpoints=place), place)


def test_counts_are_those_of_the_table(method):
    """A local step that reads or copies raises."""
    found, expected = row_of(method.name, method.phases), TABLE[method.name]
    assert found.steps.items() <= expected.steps.items()
    assert (found.workers, found.server, found.evaluation) == (expected.workers, expected.server, expected.evaluation)


def test_local_steps_of_convolutions(method):
    assert step_kernels(counts.run(method.name, "lenet5", rounds=1)[1]) == TABLE[method.name].steps["lenet5"]


def test_batch_norm_differs_from_the_cpu_by_round_off(method):
    """Its sums are added up in another order on a device; without it the sums are the same."""
    here = run_on(CPU, method.done.module.config)
    apart, way = distance(method.done, here), float((here.params - here.module.network.initial_params).abs().max())
    assert apart < 1000 * FLOAT32 * max(1.0, way)
    assert (apart > 0) == (method.done.module.config.model.norm == "batch" or method.name in PROJECTING)


def test_a_resumed_run_ends_with_the_same_bits(method):
    [after_the_first] = [path for round, path in sorted_checkpoints(method.checkpoints) if round == 1]
    resumed = run_on(DEVICE, method.done.module.config, resume=after_the_first)
    assert resumed.module.fingerprint() == method.done.module.fingerprint()


def test_the_same_kernels_give_the_same_bits_and_workers_read_nothing(method):
    """Host reads and copies of the workers' part do not depend on the method (one more plan for a full pass)."""
    config = config_of(method.name, "model.norm=none", "num_rounds=2")
    there, phases = counted(config)
    assert not phases.workers.reads
    assert phases.workers.copies.total() <= 3
    if method.name not in PROJECTING:
        here = run_on(CPU, config)
        assert there.module.fingerprint() == here.module.fingerprint()
        for theirs, ours in zip(there.figures(), here.figures(), strict=True):
            losses = [name for name in theirs if name.startswith("test/") and name.endswith("loss")]
            assert metrics.TEST_LOSS in losses
            for name in losses:  # evaluations on the CPU multiply and sum in another order
                assert theirs.pop(name) == pytest.approx(ours.pop(name), rel=1e-6)
            assert theirs == ours


@pytest.mark.parametrize("model", MODELS[2:])
def test_local_steps_of_large_networks(model, scale):
    for name in scale(FEW, base.names()):
        assert step_kernels(counts.run(name, model, rounds=1)[1]) == TABLE[name].steps[model], name


def test_every_method_has_its_row():
    assert set(TABLE) == set(base.names())
    assert all(tuple(row.steps) == MODELS for row in TABLE.values())


def test_the_table_is_read_as_it_is_written():
    lines = markdown(list(TABLE.values())).splitlines()
    assert lines[2].startswith(f"| {next(iter(TABLE))} |")
    assert len(lines) == 2 + len(TABLE)
