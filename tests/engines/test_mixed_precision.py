"""precision=bf16-mixed: the networks' products in bfloat16, everything else in float32."""

import pytest
import torch

import fl_platform.algorithms  # noqa: F401  registers them
from fl_platform import models
from fl_platform.algorithms import base
from fl_platform.kernels import convolution
from fl_platform.kernels.perceptron import Perceptron
from fl_platform.models.layers import Pass
from fl_platform.models.network import Network
from fl_platform.paper.methods import METHODS
from tests.federations import make_config, make_module, synthetic_dataset, train

ROUND_OFF = 2.0**-8


@pytest.mark.parametrize(
    ("name", "engine"), [*((name, "stacked") for name in METHODS), ("fedavg", "loop"), ("moon", "loop")]
)
def test_every_method_is_near_float32_and_not_equal(name, engine):
    args = (f"algorithm.name={name}", f"engine={engine}", "num_rounds=2")
    wide, narrow = (train(make_config(*args, f"precision={precision}")) for precision in ("float32", "bf16-mixed"))
    assert narrow.params.dtype == narrow.module.global_buffers.dtype == torch.float32
    start = wide.module.network.initial_params
    moved, apart = (wide.params - start).norm(), (wide.params - narrow.params).norm()
    assert 0 < apart < 0.2 * moved
    assert not torch.equal(narrow.params, narrow.params.bfloat16().float())  # updates are not rounded to bfloat16
    statistics = narrow.module.global_buffers
    assert not torch.equal(statistics, statistics.bfloat16().float())


@pytest.mark.parametrize("name", [name for name in base.names() if name not in METHODS])
def test_every_other_method_trains_in_float32_around_products_in_bfloat16(name):
    """How near they stay to float32 depends on the method: some divide by what they have seen, or add noise."""
    done = train(make_config(f"algorithm.name={name}", "engine=stacked", "num_rounds=1", "precision=bf16-mixed"))
    assert done.params.dtype == done.module.global_buffers.dtype == torch.float32
    assert done.params.isfinite().all()


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
@pytest.mark.parametrize("train_mode", [True, False])
def test_a_stack_with_padding_equals_its_workers_alone(norm, train_mode):
    """Both engines take the same products in bfloat16 and normalise in float32."""
    module = models.build("lenet5", (3, 16, 16), 4, norm=norm, generator=torch.Generator().manual_seed(0))
    network = Network(module, torch.bfloat16)
    generator = torch.Generator().manual_seed(1)
    x, counts = torch.randn(2, 6, 3, 16, 16, generator=generator), torch.tensor([6, 4])
    mask, keys = torch.arange(6) < counts[:, None], torch.tensor([3, 4])
    params = network.initial_params + 0.01 * torch.randn(2, network.parameters.dim, generator=generator)
    buffers = network.initial_buffers.expand(2, -1).clone()
    stacked = network.stacked(
        network.parameters.views(params), buffers, x, mask, keys, train=train_mode, updates_statistics=train_mode
    )
    assert stacked.logits.dtype == torch.float32
    for worker, count in enumerate(counts.tolist()):
        alone_buffers = network.initial_buffers.clone()
        one = Pass(train_mode, None, keys[worker], train_mode)
        alone = network.single(network.parameters.views(params[worker]), alone_buffers, x[worker, :count], one)
        assert alone.logits.dtype == torch.float32
        scale = float(alone.logits.abs().max())
        assert torch.allclose(stacked.logits[worker, :count], alone.logits, rtol=0, atol=16 * ROUND_OFF * scale)
        assert torch.allclose(buffers[worker], alone_buffers, rtol=0, atol=ROUND_OFF)


def test_products_are_taken_in_bfloat16_and_the_perceptron_kernel_stands_back():
    network = Network(models.build("mlp", (1, 4, 4), 3, norm="none"), torch.bfloat16)
    weights = network.parameters.views(network.initial_params)
    output = network.single(weights, network.initial_buffers, torch.ones(2, 1, 4, 4), Pass(train=False))
    assert output.activations[0].dtype == torch.bfloat16
    assert Perceptron.of(network, torch.float32) is None
    assert Perceptron.of(Network(network.module), torch.float32) is not None


@pytest.mark.parametrize("norm", ["batch", "none"])  # with and without compiled maxima of convolutions
def test_threads_and_evaluation_use_the_same_arithmetic(norm, monkeypatch):
    monkeypatch.setattr(convolution, "WORTH_IT", 1)
    args = ("precision=bf16-mixed", "model.name=lenet5", f"model.norm={norm}")
    config, alone = make_config(*args, "threads=2"), make_config(*args)
    done, other = (train(one, make_module(one, dataset=synthetic_dataset((3, 16, 16)))) for one in (config, alone))
    assert torch.equal(done.params, other.params)
    scores = [one.module.evaluate() for one in (done, other)]
    assert scores[0].loss == scores[1].loss
    assert scores[0].correct.tolist() == scores[1].correct.tolist()


def test_engines_are_near_where_maxima_of_convolutions_are_compiled(monkeypatch):
    monkeypatch.setattr(convolution, "WORTH_IT", 1)
    args = ("precision=bf16-mixed", "model.name=lenet5", "model.norm=none", "num_rounds=2")
    configs = [make_config(*args, f"engine={engine}") for engine in ("loop", "stacked")]
    found = [train(one, make_module(one, dataset=synthetic_dataset((3, 16, 16)))) for one in configs]
    start = found[0].module.network.initial_params
    moved, apart = (found[0].params - start).norm(), (found[0].params - found[1].params).norm()
    assert 0 < apart < 0.2 * moved or not convolution.is_multiplied(torch.bfloat16)
