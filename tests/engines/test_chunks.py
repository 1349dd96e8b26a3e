"""A cohort that does not fit the memory of a device is trained in smaller pieces, with the same result."""

from collections import deque

import pytest
import torch

from fl_platform.algorithms.base import Algorithm, LocalStep
from fl_platform.algorithms.fedavg import FedAvg
from fl_platform.engines.cohort import workers_that_fit
from fl_platform.engines.device_memory import CUDA_OUT_OF_MEMORY, is_out_of_memory
from fl_platform.errors import OutOfMemory
from fl_platform.models.flat import Stack
from fl_platform.runs import metrics
from tests.federations import make_config, train


class Hungry(Algorithm):
    """FedAvg on a device whose memory holds ``most`` workers."""

    name = "hungry"

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.sizes = most, deque[int]()  # a list that grows in a worker hook is refused

    def local_direction(self, step: LocalStep) -> Stack:
        self.sizes.append(len(step.params))
        if len(step.params) > self.most:
            raise torch.OutOfMemoryError
        return step.gradient


ARGUMENTS = ("engine=stacked", "cohort_size=5", "num_rounds=2", "local_steps=2")


def test_the_chunk_is_halved_until_it_fits_and_stays_so(capsys):
    config = make_config(*ARGUMENTS)
    algorithm = Hungry(2)
    found = train(config, algorithm=algorithm)
    assert list(algorithm.sizes) == [5, *[2, 2, 2, 2, 1, 1] * 2]
    expected = train(config, algorithm=FedAvg())
    assert torch.allclose(found.params, expected.params, rtol=0, atol=1e-12)
    passes = [[row[metrics.GRADIENT_PASSES] for row in each.module.history] for each in (found, expected)]
    assert passes[0] == passes[1]  # what was begun in vain is not counted
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "out of memory" in line] == [
        "out of memory: 2 workers at once from here on (cohort_chunk was 5)"
    ]


def test_memory_for_less_than_one_worker_is_one_sentence():
    with pytest.raises(OutOfMemory, match="does not suffice to train one worker"):
        train(make_config(*ARGUMENTS), algorithm=Hungry(0))


def test_workers_that_fit():
    assert workers_that_fit(one=100, free=1000, total=2000) == 8
    assert workers_that_fit(one=100, free=50, total=2000) == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("GET was unable to find an engine to execute this computation"), True),
        (RuntimeError("Unable to find a valid cuDNN algorithm to run convolution"), True),
        (RuntimeError("expected all tensors to be on the same device"), False),
        (KeyError("memory"), False),
    ],
)
def test_what_counts_as_out_of_memory(error, expected):
    assert is_out_of_memory(error) == expected


def test_an_error_of_cuda_is_told_by_its_code():
    error = torch.AcceleratorError("CUDA error")
    assert not is_out_of_memory(error)
    error.error_code = CUDA_OUT_OF_MEMORY
    assert is_out_of_memory(error)
