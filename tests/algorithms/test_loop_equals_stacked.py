"""R20: the stacked engine equals the loop over workers, with masked batches and BatchNorm, on every model."""

import numpy as np
import pytest
import torch

from fl_platform.algorithms import base
from fl_platform.models import vgg11
from tests.algorithms.trajectories import watching
from tests.federations import make_config, make_module, synthetic_dataset, train

SIZES = (2, 3, 63, 64, 65, 6400)  # one cohort: two-sample statistics, a dropped tail of one, a hundred batches
LARGE = slice(2, None)
SHAPES = {"mlp": (1, 4, 4), "lenet5": (3, 16, 16), "vgg11": (1, 32, 32), "resnet20": (1, 8, 8)}


@pytest.fixture(autouse=True)
def narrow_vgg(monkeypatch):
    monkeypatch.setattr(vgg11, "GROUPS", tuple(tuple(4 for _ in group) for group in vgg11.GROUPS))


def results(name: str, model: str, precision: str, engine: str, *args: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Every worker's update of one round, by worker, and the averaged running statistics."""
    settings = ["cohort_size=6", "batch_size=64", "num_rounds=1", "local_steps=2", "local_lr=0.003", f"engine={engine}"]
    width = ["model.width=4"] if model == "resnet20" else []
    config = make_config(
        f"algorithm.name={name}", f"model.name={model}", f"precision={precision}", *settings, *width, *args, workers=6
    )
    module = make_module(config, SIZES, synthetic_dataset(SHAPES[model]))
    fields = {key: value for key, value in config.algorithm.items() if key != "name"}
    done = train(config, module, algorithm=watching(base.get(name), **fields))
    [seen] = done.algorithm.server_steps
    return seen.updates.delta[np.argsort(seen.updates.workers)].double(), done.module.global_buffers.double()


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


@pytest.mark.parametrize("model", sorted(SHAPES))
def test_engines_agree_on_unequal_batches(model):
    """1e-10 in float64 and 1e-5 in float32.

    BatchNorm over two or three samples divides by what may be a tiny gap and amplifies float32's rounding up to 1e5
    times in LeNet-5; there the engines must agree as well as each agrees with float64.
    """
    loop, loop_buffers = results("fedavg", model, "float64", "loop")
    stacked, stacked_buffers = results("fedavg", model, "float64", "stacked")
    assert bool((loop.abs().amax(1) > 1e-4).all())
    assert distance(loop, stacked) < 1e-10
    assert distance(loop_buffers, stacked_buffers) < 1e-10
    short_loop, short_loop_buffers = results("fedavg", model, "float32", "loop")
    short, short_buffers = results("fedavg", model, "float32", "stacked")
    assert distance(short_loop[LARGE], short[LARGE]) < 1e-5
    assert distance(short_loop, short) < 1e-5 + 4 * distance(short_loop, loop)
    assert distance(short_loop_buffers, short_buffers) < 1e-5 + 4 * distance(short_loop_buffers, loop_buffers)


@pytest.mark.parametrize("name", ["mimelite", "moon", "fedmlb", "gradma"])
def test_engines_agree_on_what_methods_add(name):
    """A pass over 6400 samples, frozen models, hybrid paths, gradients elsewhere."""
    loop, loop_buffers = results(name, "mlp", "float64", "loop", "local_steps=3", "local_lr=0.1")
    stacked, stacked_buffers = results(name, "mlp", "float64", "stacked", "local_steps=3", "local_lr=0.1")
    assert distance(loop, stacked) < 1e-10
    assert distance(loop_buffers, stacked_buffers) < 1e-10


@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_chunks_of_a_cohort_agree_with_all_of_it(chunk):
    whole, _ = results("gradma", "mlp", "float64", "stacked")
    parts, _ = results("gradma", "mlp", "float64", "stacked", f"cohort_chunk={chunk}")
    assert distance(whole, parts) < 1e-12
