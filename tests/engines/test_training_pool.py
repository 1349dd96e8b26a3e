"""Threads that train workers side by side: the same bits, figures and errors as one."""

import threading

import pytest
import torch

from fl_platform.algorithms.base import LocalStep
from fl_platform.algorithms.gradma import GradMA
from tests.federations import make_config, synthetic_dataset, train

IMAGES = synthetic_dataset((3, 32, 32), classes=3)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon", "fedmlb", "mimelite", "gradma"])
@pytest.mark.parametrize("model", ["mlp", "lenet5"])
def test_threads_change_no_bit(name, model):
    args = [f"algorithm.name={name}", f"model.name={model}", "engine=loop", "precision=float32", "num_rounds=2"]
    one, three = (train(make_config(*args, f"threads={number}"), dataset=IMAGES) for number in (1, 3))
    assert (one.module.threads.size, three.module.threads.size) == (1, 3)
    assert torch.equal(one.params, three.params)
    assert torch.equal(one.module.global_buffers, three.module.global_buffers)
    assert one.figures() == three.figures()


def test_kernels_have_the_threads_where_workers_are_stacked():
    before = torch.get_num_threads()
    try:
        finished = train(make_config("engine=stacked", "threads=2"))
        assert (finished.module.threads.size, torch.get_num_threads()) == (1, 2)
    finally:
        torch.set_num_threads(before)


def test_workers_are_trained_on_other_threads_at_the_same_time():
    together, seen = threading.Barrier(2, timeout=60), set()

    class Meeting(GradMA):
        def local_direction(self, step: LocalStep) -> torch.Tensor:
            seen.add(threading.current_thread().name)
            if step.index == 0:
                together.wait()  # passes only where two workers are inside
            return super().local_direction(step)

    config = make_config("algorithm.name=gradma", "engine=loop", "threads=2", "cohort_size=4", "num_rounds=1")
    train(config, algorithm=Meeting(memory_size=5))
    assert len(seen) == 2
    assert all(name.startswith("training") for name in seen)


def test_an_error_in_a_worker_ends_the_run_and_is_not_lost():
    class Broken(GradMA):
        def local_direction(self, step: LocalStep) -> torch.Tensor:
            raise ArithmeticError("no direction")

    config = make_config("algorithm.name=gradma", "engine=loop", "threads=2")
    with pytest.raises(ArithmeticError, match="no direction"):
        train(config, algorithm=Broken(memory_size=5))
