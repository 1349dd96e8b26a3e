"""A network as a function of flat parameters: single, stacked and exported agree."""

import pytest
import torch
from torch import nn

from fl_platform import models
from fl_platform.models.layers import Pass
from fl_platform.models.network import Network

SHAPES = {"mlp": (1, 8, 8), "lenet5": (3, 16, 16), "resnet20": (1, 8, 8)}


def network(name: str, norm: str = "batch") -> Network:
    generator = torch.Generator().manual_seed(3)
    width = 4 if name == "resnet20" else None
    return Network(models.build(name, SHAPES[name], 5, norm=norm, width=width, generator=generator).double())


def stack_of(net: Network, workers: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    params = net.initial_params + 0.05 * torch.randn(
        workers, net.parameters.dim, generator=generator, dtype=torch.float64
    )
    buffers = net.initial_buffers.expand(workers, -1).clone()
    return params, buffers, torch.tensor([5, 6, 7])


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
@pytest.mark.parametrize("name", list(SHAPES))
def test_stacked_equals_single_with_padding_statistics_and_dropout(name, norm):
    net = network(name, norm)
    params, buffers, keys = stack_of(net)
    counts = [6, 2, 4]
    x = torch.randn(3, 6, *SHAPES[name], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mask = torch.arange(6) < torch.tensor(counts)[:, None]
    own = buffers.clone()
    out = net.stacked(net.parameters.views(params), buffers, x, mask, keys, train=True, updates_statistics=True)
    for worker, count in enumerate(counts):
        forward_pass = Pass(True, None, keys[worker], updates_statistics=True)
        alone = net.single(net.parameters.views(params[worker]), own[worker], x[worker, :count], forward_pass)
        assert torch.allclose(out.logits[worker, :count], alone.logits, rtol=0, atol=1e-10)
        assert torch.allclose(out.features[worker, :count], alone.features, rtol=0, atol=1e-10)
        assert [a.shape[2:] for a in out.activations] == [a.shape[1:] for a in alone.activations]
    assert torch.allclose(buffers, own, rtol=0, atol=1e-12)
    assert bool((buffers != net.initial_buffers).any()) == (norm == "batch")


@pytest.mark.parametrize("name", list(SHAPES))
def test_resuming_at_a_block_gives_the_same_logits(name):
    net = network(name)
    weights = net.parameters.views(net.initial_params)
    x = torch.randn(4, *SHAPES[name], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    whole = net.single(weights, net.initial_buffers, x, Pass(train=False))
    for block in range(1, len(net.blocks)):
        rest = net.single(weights, net.initial_buffers, whole.activations[block - 1], Pass(train=False), first=block)
        assert torch.equal(rest.logits, whole.logits)


def test_the_representation_is_the_input_of_the_last_linear_layer():
    own = Network(models.build("tests.models.own_modules.Plain", (1, 8, 8), 10).double())
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for net in (network("mlp"), own):
        out = net.single(net.parameters.views(net.initial_params), net.initial_buffers, x, Pass(train=False))
        last = net.parameters.views(net.initial_params)[-2:]
        assert torch.allclose(out.features @ last[0].T + last[1], out.logits, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", list(SHAPES))
def test_export_is_an_ordinary_module_with_equal_outputs(name):
    net = network(name)
    params, buffers = net.initial_params + 0.01, net.initial_buffers + 0.02
    x = torch.randn(4, *SHAPES[name], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    inside = net.single(net.parameters.views(params), buffers, x, Pass(train=False)).logits
    module = net.export(params, buffers).eval()
    assert torch.equal(module(x), inside)
    assert all(isinstance(parameter, nn.Parameter) for parameter in module.parameters())
    assert torch.equal(torch.cat([p.detach().flatten() for p in module.parameters()]), params)
    optimiser = torch.optim.SGD(module.train().parameters(), lr=0.1)
    module(x).sum().backward()
    optimiser.step()
    assert not torch.equal(module.eval()(x), inside)
    assert torch.equal(params, net.initial_params + 0.01)  # the export has values of its own


def test_an_exported_state_dict_loads_into_a_fresh_network(tmp_path):
    net = network("lenet5")
    module = net.export(net.initial_params + 0.01, net.initial_buffers).eval()
    torch.save(module.state_dict(), tmp_path / "model.pt")
    fresh = models.build("lenet5", SHAPES["lenet5"], 5).double().eval()
    fresh.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.equal(fresh(x), module(x))


def test_running_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    net = network("lenet5")
    params, buffers, keys = stack_of(net)
    x = torch.zeros(3, 4, 3, 16, 16, dtype=torch.float64)
    mask = torch.ones(3, 4, dtype=torch.bool)
    net.stacked(net.parameters.views(params), buffers, x, mask, keys, train=True, updates_statistics=True)
    assert torch.equal(before, torch.get_rng_state())
