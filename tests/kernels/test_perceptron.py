"""The written-out gradient of a perceptron against autograd's."""

import pytest
import torch
from torch import nn

from fl_platform.kernels import onednn, perceptron
from fl_platform.kernels.perceptron import Perceptron
from fl_platform.models import registry
from fl_platform.models.layers import Dropout, Pass
from fl_platform.models.network import Network


def mlp(norm: str, dtype: torch.dtype, side: int) -> Network:
    module = registry.build("mlp", (1, side, 5), 4, norm=norm, generator=torch.Generator().manual_seed(3))
    return Network(module.to(dtype))


@pytest.fixture(params=["TorchScript", "Python"])
def runs_as(request, monkeypatch):
    if request.param == "Python":
        monkeypatch.setattr(perceptron, "scripted", lambda steps: steps)
    return request.param


@pytest.mark.parametrize("norm", ["batch", "none"])
@pytest.mark.parametrize("updates_statistics", [True, False])
@pytest.mark.parametrize(("samples", "side"), [(2, 6), (9, 6), (64, 150)])  # oneDNN multiplies the last, in float32
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_loss_and_statistics_have_autograds_bits(runs_as, norm, updates_statistics, samples, side, dtype):
    network, draw = mlp(norm, dtype, side), torch.Generator().manual_seed(5)
    kernel = Perceptron.of(network)
    assert kernel is not None
    assert isinstance(kernel.compiled, torch.jit.ScriptModule) == (runs_as == "TorchScript")
    flat = network.initial_params + 0.1 * torch.randn(network.parameters.dim, generator=draw, dtype=dtype)
    x = torch.randn(samples, 1, side, 5, generator=draw, dtype=dtype)
    labels = torch.randint(0, 4, (samples,), generator=draw)
    expected_buffers, buffers = network.initial_buffers.clone(), network.initial_buffers.clone()

    leaves = [view.detach().requires_grad_() for view in network.parameters.views(flat)]
    forward_pass = Pass(train=True, updates_statistics=updates_statistics)
    with onednn.Linear():
        logits = network.single(leaves, expected_buffers, x, forward_pass).logits
    expected_loss = nn.functional.cross_entropy(logits, labels)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(expected_loss, leaves)])

    found = torch.full_like(flat, torch.nan)
    loss = kernel.gradient(flat, buffers if updates_statistics else None, x, labels, into=found)
    assert torch.equal(found, expected)
    assert torch.equal(loss, expected_loss.detach())
    assert torch.equal(buffers, expected_buffers)
    assert torch.equal(buffers, network.initial_buffers) == (norm == "none" or not updates_statistics)


@pytest.mark.parametrize("norm", ["batch", "none"])
@pytest.mark.parametrize(("samples", "side"), [(0, 6), (1, 6), (9, 6), (64, 150)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_have_the_bits_of_the_layers(runs_as, norm, samples, side, dtype):
    network, draw = mlp(norm, dtype, side), torch.Generator().manual_seed(5)
    kernel, buffers = Perceptron.of(network), network.initial_buffers + 0.5
    x = torch.randn(samples, 1, side, 5, generator=draw, dtype=dtype)
    before = x.clone()
    with torch.no_grad(), onednn.Linear():
        views = network.parameters.views(network.initial_params)
        expected = network.single(views, buffers, x, Pass(train=False)).logits
    assert kernel.logits(network.initial_params, buffers, x).equal(expected)
    assert x.equal(before)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=False)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), Dropout(0.5), nn.Linear(4, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.Linear(4, 3)),
    ],
    ids=["convolution", "no bias", "dropout", "tanh", "ends in relu", "group norm"],
)
def test_other_networks_are_left_to_autograd(module):
    assert Perceptron.of(Network(module)) is None


def test_a_shared_relu_stands_at_each_of_its_places_and_a_shared_linear_layer_is_left_to_autograd():
    relu, middle = nn.ReLU(), nn.Linear(4, 4)
    shared_relu = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), relu, nn.Linear(4, 4), relu, nn.Linear(4, 3))
    kernel = Perceptron.of(Network(shared_relu))
    assert kernel is not None
    assert [layer.kind for layer in kernel.steps.layers] == ["linear", "relu", "linear", "relu", "linear"]
    assert Perceptron.of(Network(nn.Sequential(nn.Flatten(), middle, nn.ReLU(), middle, nn.Linear(4, 3)))) is None


def test_a_perceptron_within_a_module_of_its_own_is_left_to_autograd():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(x.flatten(1)))

    assert Perceptron.of(Network(Twice())) is None
    assert Perceptron.of(Network(nn.Sequential(nn.Flatten(), Twice()))) is None
