"""Training of a perceptron as machine code against autograd and the layers in float64."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fl_platform.kernels.perceptron import Perceptron
from fl_platform.kernels.perceptron_layers import KIND, LINEAR, RELU
from fl_platform.models.layers import Dropout, Pass
from fl_platform.models.network import Network
from tests.kernels.perceptrons import NETWORKS, UNIT, chain, drawn, mlp, perceptron


def by_autograd(
    network: Network, flat: Tensor, buffers: Tensor, x: Tensor, labels: Tensor, updates: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, gradient and running statistics, in the type of the parameters."""
    buffers = buffers.to(flat.dtype).clone()
    leaves = [view.detach().requires_grad_() for view in network.parameters.views(flat)]
    logits = network.single(leaves, buffers, x.to(flat.dtype), Pass(train=True, updates_statistics=updates)).logits
    loss = nn.functional.cross_entropy(logits, labels)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, leaves)])
    return loss.detach(), gradient, buffers


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("updates_statistics", [True, False])
@pytest.mark.parametrize("samples", [2, 9, 64, 301])
def test_gradient_loss_and_statistics_are_as_exact_as_autograds(network, updates_statistics, samples):
    flat, x, labels = drawn(network, samples)
    start = network.initial_buffers + 0.25
    exact = by_autograd(network, flat.double(), start, x, labels, updates_statistics)
    plain = by_autograd(network, flat, start, x, labels, updates_statistics)
    gradient, buffers = torch.full_like(flat, torch.nan), start.clone()
    kernel = perceptron(network)
    loss = kernel.gradient(flat, buffers if updates_statistics else None, x, labels, into=gradient)
    assert loss.shape == ()
    for ours, theirs, truth in zip((loss, gradient, buffers), plain, exact, strict=True):
        tolerance = 3 * float((theirs - truth).abs().max()) if truth.numel() else 0.0
        floor = 64 * UNIT * float(truth.abs().max()) if truth.numel() else 0.0
        torch.testing.assert_close(ours.double(), truth, rtol=0, atol=max(tolerance, floor))
    assert buffers.equal(start) == (not updates_statistics or not len(start))


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_steps_at_once_have_the_bits_of_steps_along_gradients(network):
    kernel, batches = perceptron(network), [drawn(network, samples)[1:] for samples in (64, 3, 17)]
    flat, rate = drawn(network, 1)[0], 0.05
    params, buffers = flat.clone(), network.initial_buffers.clone()
    x, labels = (pad_sequence(parts, batch_first=True, padding_value=-1) for parts in zip(*batches, strict=True))
    losses = kernel.descend(params, buffers, x, labels, [64, 3, 17], rate)
    others, gradient = network.initial_buffers.clone(), torch.empty_like(flat)
    for number, (x, labels) in enumerate(batches):
        assert losses[number].equal(kernel.gradient(flat, others, x, labels, into=gradient))
        flat = torch.sub(flat, gradient, alpha=rate)
    assert params.equal(flat)
    assert buffers.equal(others)


def test_steps_of_length_zero_leave_the_model_as_it_is():
    network = mlp("batch")
    flat, x, labels = drawn(network, 8)
    params = flat.clone()
    perceptron(network).descend(params, network.initial_buffers.clone(), x[None], labels[None], [8], 0.0)
    assert params.equal(flat)


def test_parameters_in_any_layout_and_of_the_right_number_and_type():
    network = mlp("batch")
    flat, x, labels = drawn(network, 8)
    kernel, buffers, expected = perceptron(network), network.initial_buffers, torch.empty_like(flat)
    loss, found = kernel.gradient(flat, None, x, labels, into=expected), torch.empty_like(flat)
    every_second = flat.repeat_interleave(2)[::2]
    assert kernel.gradient(every_second, None, x, labels, into=found).equal(loss)
    assert found.equal(expected)
    same = torch.full((1,), 0.25)
    assert kernel.gradient(same.expand(len(flat)), None, x, labels, into=found).equal(
        kernel.gradient(torch.full_like(flat, 0.25), None, x, labels, into=expected)
    )
    assert found.equal(expected)
    with pytest.raises(RuntimeError, match="another number of labels"):
        kernel.gradient(flat, None, x, labels[1:], into=found)
    with pytest.raises(RuntimeError, match="must lie in one piece"):
        kernel.gradient(flat, None, x, labels, into=every_second)
    with pytest.raises(RuntimeError, match="must lie in one piece"):
        kernel.descend(every_second, buffers, x[None], labels[None], [8], 0.1)
    with pytest.raises(RuntimeError, match="another number of labels"):
        kernel.descend(flat, buffers, x[None], labels[None], [9], 0.1)
    with pytest.raises(RuntimeError, match=f"the network has {len(flat)} parameters of"):
        kernel.gradient(flat[1:], None, x, labels, into=found)
    with pytest.raises(RuntimeError, match="float64 given"):
        kernel.gradient(flat.double(), None, x, labels, into=found)
    with pytest.raises(RuntimeError, match=f"the network has {len(buffers)} buffers of"):
        kernel.gradient(flat, buffers[1:], x, labels, into=found)


def test_what_is_not_finite_stays_so():
    network = mlp("none")
    flat, x, labels = drawn(network, 8)
    gradient = torch.empty_like(flat)
    for value in (torch.nan, torch.inf):
        broken = torch.full_like(flat, value)
        assert not perceptron(network).gradient(broken, None, x, labels, into=gradient).isfinite()
        assert not gradient.isfinite().any()


def test_a_batch_of_one_has_no_variance():
    """As torch's own kernel has it: the variance of a sample is NaN."""
    network = chain(5, 3, is_normed=True)
    flat, x, labels = drawn(network, 1)
    buffers = network.initial_buffers.clone()
    perceptron(network).gradient(flat, buffers, x, labels, into=torch.empty_like(flat))
    views = dict(zip(network.buffers.names, network.buffers.views(buffers), strict=True))
    assert all(view.isnan().all() == name.endswith("var") for name, view in views.items())


def test_a_batch_of_no_samples_has_no_gradient():
    network = mlp("none")
    flat, x, labels = drawn(network, 0)
    gradient = torch.full_like(flat, torch.nan)
    assert perceptron(network).gradient(flat, None, x, labels, into=gradient).isnan()
    assert gradient.eq(0).all()


def test_labels_and_samples_that_do_not_fit_write_nothing_elsewhere():
    network = mlp("none")
    flat, x, labels = drawn(network, 8)
    for label in (-1, 4, 2**40):
        labels[2] = label
        assert perceptron(network).gradient(flat, None, x, labels, into=torch.empty_like(flat)).isnan()
    for samples in (x[:, :-1], x.double()):
        with pytest.raises(RuntimeError, match="the first layer takes 30 of"):
            perceptron(network).gradient(flat, None, samples, labels, into=torch.empty_like(flat))


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=False)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), Dropout(0.5), nn.Linear(4, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.Linear(4, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Linear(4, 3)),
    ],
    ids=["convolution", "no bias", "dropout", "tanh", "ends in relu", "group norm", "does not fit"],
)
def test_other_networks_are_left_to_autograd(module):
    assert perceptron(Network(module)) is None


def test_other_types_are_left_to_autograd():
    network = mlp("none")
    assert Perceptron.of(network, torch.float64) is None
    assert Perceptron.of(Network(network.module, torch.bfloat16), torch.float32) is None


def test_a_shared_relu_stands_at_each_of_its_places_and_a_shared_linear_layer_is_left_to_autograd():
    relu, middle = nn.ReLU(), nn.Linear(4, 4)
    shared_relu = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), relu, nn.Linear(4, 4), relu, nn.Linear(4, 3))
    kernel = perceptron(Network(shared_relu))
    assert kernel is not None
    assert [row[KIND] for row in kernel.chain.rows] == [LINEAR, RELU, LINEAR, RELU, LINEAR]
    assert perceptron(Network(nn.Sequential(nn.Flatten(), middle, nn.ReLU(), middle, nn.Linear(4, 3)))) is None


def test_a_perceptron_within_a_module_of_its_own_is_left_to_autograd():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(x.flatten(1)))

    assert perceptron(Network(Twice())) is None
    assert perceptron(Network(nn.Sequential(nn.Flatten(), Twice()))) is None
