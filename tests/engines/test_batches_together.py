"""Gradients of several batches at one point in one pass through a perceptron, and one by one."""

import pytest
import torch

from fl_platform.engines import loop
from fl_platform.engines.loop import SingleObjective
from tests.federations import make_config, train

SIZES = (300, 100, 170, 40)
ARGS = ("engine=loop", "batch_size=64", "local_steps=5", "num_rounds=3", "cohort_size=3")


def trained(*args: str):
    return train(make_config(*ARGS, *args, workers=len(SIZES)), sizes=SIZES)


@pytest.fixture
def groups(monkeypatch):
    """How many batches each pass had."""
    seen, together = [], SingleObjective._together

    def counting(objective, *arguments):
        found = together(objective, *arguments)
        seen.append(len(found[0]))
        return found

    monkeypatch.setattr(SingleObjective, "_together", counting)
    return seen


@pytest.mark.parametrize("algorithm", ["gradma", "gradma_w", "mime"])
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_batches_together_have_the_numbers_and_the_counts_of_batches_one_by_one(monkeypatch, groups, algorithm, norm):
    args = (f"algorithm.name={algorithm}", f"model.norm={norm}")
    together = trained(*args)
    assert max(groups) > 1
    groups.clear()
    monkeypatch.setattr(loop, "ROWS_TOGETHER", 10**9)
    alone = trained(*args)
    assert set(groups) == {1}
    torch.testing.assert_close(together.params, alone.params, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(together.module.global_buffers, alone.module.global_buffers, rtol=1e-6, atol=1e-7)
    passes = [row["work/gradient_passes"] for row in together.module.history]
    assert passes == [row["work/gradient_passes"] for row in alone.module.history]


def test_gradma_takes_its_thirteen_gradients_in_seven_passes(groups):
    """x_0, x_{-1}, x_t on batches 1 to 4, x_1 to x_3 on their own batch and the next, x_4."""
    train(
        make_config(
            "engine=loop",
            "batch_size=64",
            "local_steps=5",
            "num_rounds=1",
            "cohort_size=1",
            "algorithm.name=gradma",
            workers=2,
        ),
        sizes=(320, 320),
    )
    assert groups == [1, 1, 2, 4, 2, 2, 1]


def test_small_batches_stay_alone(groups):
    trained("algorithm.name=gradma", "batch_size=16")
    assert set(groups) == {1}


def test_few_gradients_of_a_large_model_are_kept(monkeypatch, groups):
    monkeypatch.setattr(loop, "FLOATS_TOGETHER", 1)
    trained("algorithm.name=gradma", "num_rounds=1")
    assert max(groups) == 2
