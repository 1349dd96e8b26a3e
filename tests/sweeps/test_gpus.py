"""Which GPU a process of a sweep sees."""

import pytest

from fl_platform.sweeps import pools
from fl_platform.sweeps.pools import gpu_variables, visible_gpus


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("-1", []), ("", []), ("0,2", ["0", "2"]), ("GPU-1a, 3", ["GPU-1a", "3"]), ("1,-1,2", ["1"])],
)
def test_the_variable_is_read_as_cuda_reads_it(variable, expected, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == expected


def test_processes_take_gpus_in_turn():
    names = [gpu_variables(slot, ["2", "5"]) for slot in range(3)]
    assert names == [{"CUDA_VISIBLE_DEVICES": name} for name in ("2", "5", "2")]
    assert gpu_variables(0, []) == {}


def test_further_launchers_of_a_sweep_take_the_next_gpus(monkeypatch, tmp_path):
    """The process that starts them is the first, on the first GPU."""
    given = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    monkeypatch.setattr(pools, "start_process", lambda command, variables, log: given.append(variables))
    pools.ExtraLaunchers(2, ["a.yaml"], tmp_path)
    assert given == [{"CUDA_VISIBLE_DEVICES": "5"}, {"CUDA_VISIBLE_DEVICES": "2"}]
