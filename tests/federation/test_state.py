"""What workers keep: rows for those seen, defaults for the others, and a round trip."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_platform.algorithms.base import Start
from fl_platform.federation.state import WorkerStates

CPU = torch.device("cpu")
GIVEN = {Start.GLOBAL_PARAMS: torch.arange(4.0), Start.GLOBAL_BUFFERS: torch.tensor([7.0, 8.0])}
STARTS = {"control": Start.ZEROS, "last": Start.GLOBAL_PARAMS, "statistics": Start.GLOBAL_BUFFERS}


def rows(workers, width, scale=1.0):
    return scale * torch.tensor(workers, dtype=torch.float32)[:, None].expand(-1, width) + 100


def test_a_worker_never_seen_has_the_default():
    gathered = WorkerStates(STARTS, CPU).gather(np.array([3, 1]), GIVEN)
    assert torch.equal(gathered["control"], torch.zeros(2, 4))
    assert torch.equal(gathered["last"], GIVEN[Start.GLOBAL_PARAMS].expand(2, 4))
    assert torch.equal(gathered["statistics"], GIVEN[Start.GLOBAL_BUFFERS].expand(2, 2))


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6, unique=True), min_size=1, max_size=8))
def test_what_was_scattered_last_is_gathered(cohorts):
    states = WorkerStates({"last": Start.GLOBAL_PARAMS}, CPU)
    reference: dict[int, float] = {}
    for number, cohort in enumerate(cohorts, 1):
        states.scatter(np.array(cohort), {"last": rows(cohort, 4, number)})
        reference |= {worker: number * worker + 100.0 for worker in cohort}
    everyone = np.arange(31)
    gathered = states.gather(everyone, GIVEN)["last"]
    for worker in everyone:
        expected = torch.full((4,), reference[worker]) if worker in reference else GIVEN[Start.GLOBAL_PARAMS]
        assert torch.equal(gathered[worker], expected)


def test_memory_grows_with_the_workers_seen_and_is_saved_without_a_copy():
    states = WorkerStates({"last": Start.GLOBAL_PARAMS}, CPU)
    assert states.state_dict() == {}
    for seen in range(1, 40):
        states.scatter(np.array([10**6 * seen]), {"last": rows([seen], 4)})
        saved = states.state_dict()["last"]
        assert saved["workers"].tolist() == [10**6 * worker for worker in range(1, seen + 1)]
        assert [row.untyped_storage().nbytes() for row in saved["rows"]] == [16] * seen
    assert saved["rows"][0] is states.state_dict()["last"]["rows"][0]


def test_nothing_kept_costs_nothing():
    states = WorkerStates({}, CPU)
    states.scatter(np.array([1, 2]), {})
    assert states.gather(np.array([1, 2]), GIVEN) == {}
    assert states.state_dict() == {}


def test_what_is_gathered_and_scattered_is_a_copy():
    states = WorkerStates({"last": Start.GLOBAL_PARAMS}, CPU)
    source = rows([1, 2], 4)
    states.scatter(np.array([1, 2]), {"last": source})
    source.zero_()
    gathered = states.gather(np.array([1, 2]), GIVEN)["last"]
    assert torch.equal(gathered, rows([1, 2], 4))
    gathered.zero_()
    assert torch.equal(states.gather(np.array([1, 2]), GIVEN)["last"], rows([1, 2], 4))


def test_a_round_trip_through_a_file_is_exact(tmp_path):
    states = WorkerStates(STARTS, CPU)
    workers = np.array([5, 2, 9])
    values = {"control": torch.randn(3, 4), "last": torch.randn(3, 4), "statistics": torch.randn(3, 2)}
    states.scatter(workers, values)
    torch.save(states.state_dict(), tmp_path / "states.pt")
    restored = WorkerStates(STARTS, CPU)
    restored.load_state_dict(torch.load(tmp_path / "states.pt", weights_only=True))
    for name, stack in restored.gather(workers, GIVEN).items():
        assert torch.equal(stack, values[name])
    restored.scatter(np.array([77]), {name: stack[:1] + 1 for name, stack in values.items()})
    assert torch.equal(
        restored.gather(np.array([77, 2]), GIVEN)["last"], torch.stack([values["last"][0] + 1, values["last"][1]])
    )


def test_state_lives_on_the_device_asked_for():
    """meta stands for another device: rows go there and only there."""
    states = WorkerStates({"last": Start.GLOBAL_PARAMS}, torch.device("meta"))
    states.scatter(np.array([1]), {"last": rows([1], 4)})
    assert states._rows["last"][1].device.type == "meta"
    with pytest.raises(NotImplementedError, match="meta tensor"):  # and back again needs its values
        states.gather(np.array([1]), GIVEN)
