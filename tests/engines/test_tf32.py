"""TensorFloat-32 is used where it was asked for, and there by the networks alone."""

from collections import deque

import pytest
import torch

from fl_platform.algorithms.base import Algorithm, LocalBatch, LocalStep, Updates
from fl_platform.models.flat import Stack, Vector
from fl_platform.models.network import allowing_tf32, refuse_tf32
from tests.federations import make_config, train


def flags() -> set[bool]:
    return {torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32}


class Watching(Algorithm):
    name = "watching"

    def __init__(self) -> None:
        super().__init__()
        self.in_networks, self.elsewhere = (
            deque[set[bool]](),
            deque[set[bool]](),
        )  # a list that grows in a worker hook is refused

    def local_loss(self, batch: LocalBatch) -> torch.Tensor:
        self.in_networks.append(flags())
        return super().local_loss(batch)

    def local_direction(self, step: LocalStep) -> Stack:
        self.elsewhere.append(flags())
        return step.gradient

    def server_direction(self, updates: Updates) -> Vector:
        self.elsewhere.append(flags())
        return updates.mean_delta


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("asked", [False, True])
def test_tf32_stays_within_the_networks(asked, engine):
    torch.backends.cudnn.allow_tf32 = True  # as torch has it
    algorithm = Watching()
    train(make_config(f"tf32={str(asked).lower()}", f"engine={engine}", "num_rounds=2"), algorithm=algorithm)
    assert algorithm.in_networks
    assert all(found == {asked} for found in algorithm.in_networks)
    assert all(found == {False} for found in algorithm.elsewhere)
    assert flags() == {False}


def test_a_setting_for_all_of_torch_is_refused_too():
    kinds = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)
    before, torch.backends.fp32_precision = torch.backends.fp32_precision, "tf32"
    try:
        refuse_tf32()
        assert [kind.fp32_precision for kind in kinds] == ["ieee"] * 3
        with allowing_tf32(True):
            assert [kind.fp32_precision for kind in kinds] == ["tf32"] * 3
            assert flags() == {True}
        assert [kind.fp32_precision for kind in kinds] == ["ieee"] * 3
    finally:
        torch.backends.fp32_precision = before
