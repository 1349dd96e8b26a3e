"""The benchmarks measure real runs: tiny ones here, and nothing about how fast they are."""

import dataclasses
import json
import time

import pytest
import torch

from benchmarks import devices, kernels, processes, projection, scaling, server, suite, synthetic
from benchmarks.__main__ import main
from benchmarks.federation import LIGHTNING, WARM_UP, flop_per_sample, run, w1_arguments
from benchmarks.layers import layer_bound
from benchmarks.machine import description, memory_bytes, peak_bytes
from benchmarks.memory_use import state_slots, tensors
from fl_platform.algorithms import gradma
from fl_platform.data import datasets
from fl_platform.errors import UserError

TINY = (
    *scaling.small_args("data.name=random_small", "num_workers=20", "cohort_size=2", "local_steps=2"),
    "batch_size=8",
)


@pytest.fixture(scope="module")
def finished():
    return run([*TINY, "algorithm.name=gradma", "algorithm.memory_size=4", "evaluation.every=1"], 3)


def test_a_run_is_timed_round_by_round(finished):
    assert len(finished.watch.rounds) == 3
    assert finished.watch.samples == [2 * 2 * 8] * 3
    assert len(finished.module.history) == WARM_UP + 3 + 1
    assert len(finished.watch.probes) == 3


def test_parts_add_up_to_the_round(finished):
    parts = finished.parts()
    assert {"local steps", "evaluation", "worker QP", "W&B logging", "row file", "cohort sampling", LIGHTNING} <= set(
        parts
    )
    assert all(seconds.wall > 0 for seconds in parts.values())
    mean = sum(seconds.wall for seconds in finished.watch.rounds) / 3
    assert sum(seconds.wall for seconds in parts.values()) == pytest.approx(mean)


def test_nothing_stays_wrapped(finished):
    assert gradma.project_stack is projection.project_stack
    assert "draw" not in vars(finished.module.streams)


def test_flops_are_those_of_the_layers(finished):
    train, evaluate = flop_per_sample(finished.module)
    products = 16 * 200 + 200 * 100 + 100 * 10
    assert evaluate == 2 * products
    assert train == 2 * (3 * products - 16 * 200)  # the images need no gradient
    expected = train * 32 + evaluate * len(finished.module.test_samples)
    assert finished.flop() == expected
    assert finished.bound().wall > 0


def test_layers_alone_are_timed(finished):
    assert layer_bound(finished.module, 32.0, 1).wall > 0


def test_w1_is_what_it_says():
    args = w1_arguments()
    assert {"num_workers=100", "cohort_size=10", "local_steps=5", "batch_size=64", "model.norm=none"} <= set(args)


def test_random_images_are_the_same_in_every_process():
    first, again = (datasets.load("random_small")[0] for _ in range(2))
    assert torch.equal(first.features, again.features)
    assert len(first) == 20_000
    assert first.features.double().mean().item() == pytest.approx(127.5, abs=1)


@pytest.mark.parametrize("dimension", [10**4, 10**6])
def test_wide_networks_have_the_size_asked_for(dimension):
    size = sum(p.numel() for p in synthetic.Wide(synthetic.width_for(dimension)).parameters())
    assert size == pytest.approx(dimension, rel=0.01)


def test_the_server_that_is_timed_has_a_full_memory():
    small = server.Server(20, 50, cohort=5)
    assert small.memory.used == 20
    before = small.memory.hits
    small.step(small.deltas)
    assert small.memory.hits == before + 5
    assert any("products" in line for line in server.breakdown(small, 1))


def test_the_projection_that_is_timed_is_in_conflict():
    found = projection.project_stack(projection.columns(1000))
    assert (found.active > 0).all()
    [entry] = projection.against_cvxpylayers(quick=True)
    assert entry.value.wall > 0  # it is 0 where cvxpylayers is the more accurate


def test_a_kernel_is_timed_in_turns_with_its_plain_twin():
    before = [vars(case.owner)[case.attribute] for case in kernels.CASES]
    case = dataclasses.replace(kernels.CASES[0], overrides=[*TINY, "algorithm.name=gradma"])
    assert all(seconds > 0 for seconds in kernels.measure(case, 1, time.process_time))
    assert [vars(case.owner)[case.attribute] for case in kernels.CASES] == before


def test_exponents_and_the_plot(tmp_path):
    curve = scaling.Curve("s", "cohort S", [1, 10, 100], [5.0, 6.0, 60.0])
    assert curve.exponent() == pytest.approx(1)
    scaling.draw([curve] * 4, tmp_path / "bench" / "scaling.png")
    assert (tmp_path / "bench" / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_runs_in_their_own_process_are_timed():
    assert processes.round_seconds([*TINY, "evaluation.every=1"], 2) > 0


def test_state_slots_are_counted_from_a_checkpoint(tmp_path):
    saved = {
        "state_dict": {"global_params": torch.zeros(10)},
        "callbacks": {"algorithm": {"rows": torch.zeros(4, 10), "round": 3}},
        "federated": {"states": {"tables": {"control": torch.zeros(2, 10)}}},
    }
    torch.save(saved, tmp_path / "x.ckpt")
    assert state_slots(tmp_path / "x.ckpt") == (6, 10)
    assert tensors({"a": 1}) == []


def test_every_figure_of_the_suite_has_one_name():
    names = [name for benchmark in suite.BENCHMARKS for name in benchmark.names]
    assert len(names) == len(set(names))
    assert {b.measure for b in suite.chosen(["w1_gradma_m_100", "server"])} == {suite.rounds.gradma, server.step}
    with pytest.raises(UserError, match=r"--only=w1_gradma_m_10 .*did you mean 'w1_gradma_m_100'"):
        suite.chosen(["w1_gradma_m_10"])


def test_what_cannot_be_measured_does_not_cost_the_rest(monkeypatch):
    def refuses(quick: bool) -> list[suite.Entry]:
        raise UserError("cvxpylayers is missing")

    monkeypatch.setattr(suite, "BENCHMARKS", (suite.Benchmark("x", refuses, ("one", "two")),))
    entries = suite.measure([], True, lambda line: None)
    assert [(e.name, e.ok, e.why) for e in entries] == [
        ("one", None, ("cvxpylayers is missing",)),
        ("two", None, ("cvxpylayers is missing",)),
    ]


def test_the_command_prints_and_writes(tmp_path, capsys):
    assert main(["--quick", "--only", "one_projection_per_tensor", "--json", str(tmp_path / "b.json")]) == 0
    assert "Gram matrix" in capsys.readouterr().out
    assert [record["unit"] for record in json.loads((tmp_path / "b.json").read_text())] == ["us", "us"]


def test_the_machine_is_described():
    assert "cores" in description()["processor"]
    assert peak_bytes() >= memory_bytes() >= 0


def test_a_device_is_measured_with_both_engines():
    entries = devices.measure("cpu", quick=True, only=["w1"])
    assert [entry.name for entry in entries] == ["w1_loop_cpu", "w1_stacked_cpu"]
    assert all(entry.value.wall > 0 for entry in entries)
    assert "GFLOP/s" in entries[0].why[0]


def test_a_device_that_is_not_there():
    with pytest.raises(UserError, match="--device=cuda:9"):
        main(["--device", "cuda:9"])
