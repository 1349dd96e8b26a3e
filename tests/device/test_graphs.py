"""``graphs=true``: gradients replayed from captured graphs; the simulated device records and repeats operators."""

from itertools import pairwise

import pytest
import torch

from fl_platform.engines import graphed
from fl_platform.kernels.graphs import CAPTURES
from tests.device import simulated
from tests.device.runs import CPU, DEVICE, counted, distance, run_on
from tests.device.test_runs import ROUND_OFF
from tests.federations import make_config


@pytest.fixture(autouse=True)
def captures(monkeypatch):
    monkeypatch.setitem(CAPTURES, simulated.NAME, simulated.capture)


def config_of(*args, rounds=3):
    return make_config("engine=stacked", f"num_rounds={rounds}", *args)


@pytest.mark.parametrize(
    "args",
    [
        ("algorithm.name=fedavg",),
        ("algorithm.name=gradma",),
        ("algorithm.name=scaffold", "model.name=lenet5"),
        ("algorithm.name=fedprox", "cohort_chunk=2"),
    ],
    ids=" ".join,
)
def test_replayed_gradients_are_those_of_the_engine(args, capfd):
    plain, replayed = (run_on(DEVICE, config_of(*args, f"graphs={on}")) for on in ("false", "true"))
    assert distance(plain, replayed) < 1000 * ROUND_OFF
    [training] = [replayed.module.threads._idle.get()]
    captured = [graph for graph in training.graphs.values() if graph is not None]
    assert 0 < len(captured) <= graphed.MOST_GRAPHS
    assert "graphs=true" not in capfd.readouterr().err


def test_a_replayed_step_starts_few_kernels():
    steps = {}
    for on in ("false", "true"):
        _, phases = counted(config_of("algorithm.name=fedavg", f"graphs={on}", "local_steps=4", rounds=3))
        last = phases.steps[-3:]  # of the third round: the second still captures shapes that the first did not have
        steps[on] = max(after[0] - before[0] for before, after in pairwise(last))
    assert steps["true"] < 40 < 60 < steps["false"]


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("algorithm.name=moon",), "the local loss of moon may read tensors"),
        (("engine=loop",), "engine=loop; they are for engine=stacked"),
    ],
)
def test_what_cannot_be_captured_runs_without(args, reason, capfd):
    base = ("engine=stacked", "num_rounds=2", *args)
    plain, other = (run_on(DEVICE, make_config(*base, f"graphs={on}")) for on in ("false", "true"))
    assert plain.module.fingerprint() == other.module.fingerprint()
    assert f"graphs=true has no effect: {reason}" in capfd.readouterr().err


def test_a_cpu_has_no_graphs(capfd):
    run_on(CPU, config_of("graphs=true", rounds=1))
    assert "graphs=true has no effect: cpu has no graphs, CUDA does" in capfd.readouterr().err


def test_a_capture_that_fails_costs_nothing_but_the_graph(monkeypatch, capfd):
    def refuse(work):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setitem(CAPTURES, simulated.NAME, refuse)
    plain, other = (run_on(DEVICE, config_of(f"graphs={on}")) for on in ("false", "true"))
    assert plain.module.fingerprint() == other.module.fingerprint()
    assert "not captured, computed without: operation not permitted" in capfd.readouterr().err


def test_the_simulated_graph_repeats_its_work_with_new_values():
    x = torch.zeros(3, device=DEVICE)
    replay, found = simulated.capture(lambda: (x + 1).view(3, 1).mul_(2))
    x.fill_(4)
    replay()
    assert found.cpu().flatten().tolist() == [10, 10, 10]
    with pytest.raises(RuntimeError, match="while a graph is captured"):
        simulated.capture(lambda: x.sum().item())
