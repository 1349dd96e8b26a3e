"""Values travel between host and device in few copies, whatever the number of workers and steps."""

import numpy as np
import pytest
import torch

from fl_platform.algorithms.base import Start
from fl_platform.engines.transfer import moved, to_device
from fl_platform.federation.build import make_algorithm
from fl_platform.federation.state import WorkerStates
from tests.device.runs import CPU, DEVICE, Phases, run_on
from tests.device.simulated import counting
from tests.federations import make_config, make_module


def test_arrays_travel_together():
    arrays = [np.arange(6).reshape(2, 3), np.arange(4), np.zeros((0, 2), np.int64)]
    with counting() as counts:
        tensors = to_device(arrays, DEVICE)
    assert counts.totals == (0, 0, 1)
    for array, tensor in zip(arrays, tensors, strict=True):
        assert tensor.device == DEVICE
        assert torch.equal(tensor.cpu(), torch.from_numpy(array))
    assert to_device(arrays, CPU)[0].data_ptr() == arrays[0].ctypes.data


@pytest.mark.parametrize("workers", [2, 5])
def test_state_on_the_host_takes_one_copy_a_round_each_way(workers):
    states = WorkerStates({"kept": Start.ZEROS}, CPU)
    stack = torch.arange(workers * 4.0).view(workers, 4)
    with counting() as counts:
        states.scatter(np.arange(workers), {"kept": moved(stack, DEVICE)})
    assert counts.totals[1:] == (1, 1)  # the second is this test's own
    given = {Start.GLOBAL_PARAMS: torch.zeros(4, device=DEVICE)}
    with counting() as counts:
        found = states.gather(np.arange(workers), given)["kept"]
    assert counts.totals[1:] == (0, 1)
    assert found.device == DEVICE
    assert torch.equal(found.cpu(), stack)


def test_rows_of_a_scattered_stack_are_copies():
    states, stack = WorkerStates({"kept": Start.ZEROS}, CPU), torch.ones(2, 3)
    states.scatter(np.arange(2), {"kept": stack})
    stack.zero_()
    assert bool((states.gather(np.arange(2), {Start.GLOBAL_PARAMS: stack[0]})["kept"] == 1).all())


def test_batches_of_equal_length_are_not_masked():
    config = make_config("engine=stacked", "num_rounds=2", "precision=float32")

    def masked(sizes: tuple[int, ...]) -> int:
        phases = Phases()
        module = make_module(config, sizes)
        run_on(DEVICE, config, module=module, algorithm=phases.watch(make_algorithm(config)), callbacks=(phases,))
        return sum(times for (name, _), times in phases.workers.kernels.items() if name.startswith("masked_norm"))

    assert masked((16,) * 6) == 0 < masked((16, 15) * 3)
