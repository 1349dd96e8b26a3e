"""A device whose memory ends: cohorts are cut to what fits, and what does not fit at all is one sentence."""

import pytest
import torch

from fl_platform.errors import OutOfMemory
from fl_platform.kernels.graphs import CAPTURES
from fl_platform.runs import metrics
from tests.device import simulated
from tests.device.runs import CPU, DEVICE, distance, run_on
from tests.device.simulated import limited_memory
from tests.device.test_runs import ROUND_OFF
from tests.federations import Finished, make_config

PLENTY = 1 << 40
ARGUMENTS = ("engine=stacked", "cohort_size=6", "num_rounds=2", "algorithm.name=gradma_w")


def most_bytes(*args: str) -> int:
    """What a run holds at most."""
    with limited_memory(PLENTY) as memory:
        run_on(DEVICE, make_config(*ARGUMENTS, *args))
    return memory.peak


def passes(done: Finished) -> list[int]:
    return [row[metrics.GRADIENT_PASSES] for row in done.module.history]


@pytest.fixture(scope="module")
def whole() -> int:
    return most_bytes("cohort_chunk=6")


@pytest.fixture(scope="module")
def alone() -> int:
    return most_bytes("cohort_chunk=1")


@pytest.fixture(scope="module")
def expected() -> Finished:
    return run_on(CPU, make_config(*ARGUMENTS))


def test_a_chunk_that_does_not_fit_is_halved(whole, alone, expected, capfd):
    with limited_memory((whole + alone) // 2) as memory:
        found = run_on(DEVICE, make_config(*ARGUMENTS, "cohort_chunk=6"))
    assert memory.refusals == 1
    assert "out of memory: 3 workers at once from here on (cohort_chunk was 6)" in capfd.readouterr().err
    assert distance(found, expected) < 1000 * ROUND_OFF
    assert passes(found) == passes(expected)


def test_the_chunk_that_fits_is_found_before_memory_runs_out(whole, alone, expected, capfd):
    with limited_memory((whole + alone) // 2) as memory:
        found = run_on(DEVICE, make_config(*ARGUMENTS))
    assert memory.refusals == 0
    assert 1 <= found.module.threads.fitting < 6
    assert "out of memory" not in capfd.readouterr().err
    assert distance(found, expected) < 1000 * ROUND_OFF
    assert passes(found) == passes(expected)


def test_one_worker_that_does_not_fit_is_one_sentence(alone):
    with limited_memory(alone * 9 // 10), pytest.raises(OutOfMemory, match="simulated:0 does not suffice to train one"):
        run_on(DEVICE, make_config(*ARGUMENTS))


def test_a_probe_leaves_no_graphs_behind(monkeypatch):
    monkeypatch.setitem(CAPTURES, simulated.NAME, simulated.capture)
    with limited_memory(PLENTY):
        found = run_on(DEVICE, make_config(*ARGUMENTS, "graphs=true"))
    with found.module.threads.borrowed() as training:
        sizes = {dict(key[1:])["keys"] for key in training.graphs}
    assert sizes == {(6,)}


def test_a_halved_chunk_leaves_no_graphs_of_the_longer_one_behind(monkeypatch):
    monkeypatch.setitem(CAPTURES, simulated.NAME, simulated.capture)
    whole, half = (most_bytes(f"cohort_chunk={chunk}", "graphs=true", "num_rounds=1") for chunk in (6, 3))
    with limited_memory((whole + half) // 2) as memory:
        found = run_on(DEVICE, make_config(*ARGUMENTS, "graphs=true", "cohort_chunk=6"))
    assert memory.refusals
    with found.module.threads.borrowed() as training:
        sizes = {dict(key[1:])["keys"] for key in training.graphs}
    assert sizes <= {(3,), (1,)}


def test_memory_is_counted_while_tensors_live():
    with limited_memory(1000) as memory:
        first = torch.zeros(100, device=DEVICE)
        assert (memory.live, memory.mem_get_info()) == (400, (600, 1000))
        view, second = first[50:], first + 1
        assert memory.live == 800
        with pytest.raises(torch.OutOfMemoryError):
            first + second
        del first, second
        assert memory.live == 400  # of the view
        del view
        assert (memory.live, memory.peak) == (0, 800)
