"""Layers that know padding equal PyTorch's own on the samples that are real."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fl_platform.models.layers import BatchNorm, Dropout, MaxPool2d, Pass, adopt, adopt_layers, norm_layer, running


def pair(channels: int, dims: int) -> tuple[BatchNorm, nn.Module]:
    """Our BatchNorm and PyTorch's with equal values."""
    generator = torch.Generator().manual_seed(channels)
    theirs = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d)[dims](channels).double()
    with torch.no_grad():
        for value in (theirs.weight, theirs.bias, theirs.running_mean, theirs.running_var):
            value.copy_(torch.rand(channels, generator=generator, dtype=torch.float64) + 0.5)
    ours = BatchNorm(channels).double()
    ours.load_state_dict({k: v for k, v in theirs.state_dict().items() if k != "num_batches_tracked"})
    return ours, theirs


@settings(max_examples=30)
@given(st.integers(2, 9), st.integers(0, 5), st.integers(0, 2), st.booleans())
def test_masked_batch_norm_equals_pytorch_on_unpadded_data(real, padding, dims, updates):
    generator = torch.Generator().manual_seed(100 * real + 10 * padding + dims)
    ours, theirs = pair(3, dims)
    x = torch.randn(real + padding, 3, *(4, 5)[:dims], generator=generator, dtype=torch.float64)
    before = ours.running_mean.clone(), ours.running_var.clone()
    mask = torch.arange(real + padding) < real
    mine, reference = x.clone().requires_grad_(), x[:real].clone().requires_grad_()
    with running(Pass(train=True, mask=mask, updates_statistics=updates)):
        out = ours(mine)
    expected = theirs(reference)
    assert torch.allclose(out[:real], expected, rtol=0, atol=1e-12)
    expected_statistics = (theirs.running_mean, theirs.running_var) if updates else before
    assert torch.allclose(ours.running_mean, expected_statistics[0], rtol=0, atol=1e-12)
    assert torch.allclose(ours.running_var, expected_statistics[1], rtol=0, atol=1e-12)
    weights = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    (out[:real] * weights).sum().backward()
    (expected * weights).sum().backward()
    assert torch.allclose(mine.grad[:real], reference.grad, rtol=0, atol=1e-10)
    assert not mine.grad[real:].any()
    assert torch.allclose(ours.weight.grad, theirs.weight.grad, rtol=0, atol=1e-10)


def test_unmasked_batch_norm_is_pytorchs_in_training_and_evaluation():
    ours, theirs = pair(3, 2)
    x = torch.randn(6, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with running(Pass(train=True, updates_statistics=True)):
        assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_var, theirs.running_var)
    with running(Pass(train=False)):
        assert torch.equal(ours(x), theirs.eval()(x))


def test_outside_a_pass_batch_norm_follows_its_mode():
    ours, theirs = pair(3, 1)
    x = torch.randn(6, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_mean, theirs.running_mean)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))


@pytest.mark.parametrize("channels", [False, True])
def test_dropout_stacked_equals_single_and_padding_changes_no_mask(channels):
    layer = Dropout(0.4, channels)
    x = torch.ones(3, 5, 4, 2, 2)
    keys = torch.tensor([11, 22, 33])

    def single(x, key):
        with running(Pass(train=True, key=key)):
            return layer(x)

    stacked = torch.vmap(single)(x, keys)
    for worker in range(3):
        assert torch.equal(stacked[worker], single(x[worker], keys[worker]))
        assert torch.equal(stacked[worker, :3], single(x[worker, :3], keys[worker]))
    assert not torch.equal(stacked[0], stacked[1])


def test_dropout_keeps_the_mean_and_draws_anew_at_each_layer_of_a_pass():
    layer = Dropout(0.3)
    x = torch.ones(100, 400)
    with running(Pass(train=True, key=torch.tensor(5))):
        first, second = layer(x), layer(x)
    assert first.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert abs(float(first.mean()) - 1) < 0.02
    assert abs(float(((first > 0) == (second > 0)).double().mean()) - (0.7**2 + 0.3**2)) < 0.02


def test_dropout_of_channels_drops_whole_channels():
    with running(Pass(train=True, key=torch.tensor(5))):
        out = Dropout(0.5, channels=True)(torch.ones(50, 20, 3, 3))
    per_channel = out.flatten(2)
    assert torch.equal(per_channel.amin(2), per_channel.amax(2))
    assert 0.4 < float((per_channel[:, :, 0] > 0).double().mean()) < 0.6


def test_dropout_in_evaluation_of_everything_and_without_a_key():
    x = torch.ones(4, 4)
    with running(Pass(train=False)):
        assert torch.equal(Dropout(0.5)(x), x)
    with running(Pass(train=True, key=torch.tensor(1))):
        assert torch.equal(Dropout(1.0)(x), torch.zeros(4, 4))
        assert torch.equal(Dropout(0.0)(x), x)
    with running(Pass(train=True)), pytest.raises(RuntimeError, match="needs a key"):
        Dropout(0.5)(x)


def test_outside_a_pass_dropout_is_pytorchs():
    x = torch.ones(8, 8, 2, 2)
    for ours, theirs in ((Dropout(0.3), nn.Dropout(0.3)), (Dropout(0.3, channels=True), nn.Dropout2d(0.3))):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            mine = ours(x)
            torch.manual_seed(3)
            assert torch.equal(mine, theirs(x))
        assert torch.equal(ours.eval()(x), x)


def test_a_pass_says_what_computes_maxima():
    layer, x = MaxPool2d(2, ceil_mode=True), torch.arange(18.0).view(1, 2, 3, 3)
    asked = []

    def first(x: torch.Tensor, *sizes: object, **flags: object) -> torch.Tensor:
        asked.append((sizes, flags))
        return x[..., ::2, ::2]

    with running(Pass(train=True, max_pool2d=first)):
        assert layer(x).equal(x[..., ::2, ::2])
    assert asked == [((2, 2, 0, 1), {"ceil_mode": True, "return_indices": False})]
    with running(Pass(train=True)):
        assert layer(x).equal(nn.MaxPool2d(2, ceil_mode=True)(x))
    assert layer(x).equal(nn.MaxPool2d(2, ceil_mode=True)(x))


def test_norm_layers_by_name():
    assert isinstance(norm_layer("batch", 8), BatchNorm)
    assert isinstance(norm_layer("none", 8), nn.Identity)
    assert [norm_layer("group", channels).num_groups for channels in (64, 48, 20, 7)] == [32, 24, 20, 7]


def test_adopted_layers_have_the_users_values():
    module = nn.Sequential(nn.BatchNorm2d(4, momentum=0.3, eps=1e-3), nn.Sequential(nn.Dropout2d(0.2), nn.Dropout(0.1)))
    with torch.no_grad():
        module[0].weight.fill_(2)
        module[0].running_mean.fill_(3)
    adopt(module)
    norm, (channels, plain) = module
    assert isinstance(norm, BatchNorm)
    assert (norm.momentum, norm.eps) == (0.3, 1e-3)
    assert torch.equal(norm.weight, torch.full((4,), 2.0))
    assert torch.equal(norm.running_mean, torch.full((4,), 3.0))
    assert (channels.probability, channels.channels) == (0.2, True)
    assert (plain.probability, plain.channels) == (0.1, False)


def test_adopted_pooling_has_the_users_sizes():
    theirs = nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.MaxPool2d((2, 1), ceil_mode=True), nn.MaxPool2d(2, dilation=2))
    x = torch.randn(2, 3, 19, 19, generator=torch.Generator().manual_seed(0))
    expected, text = theirs(x), str(theirs)
    adopt_layers(theirs)
    assert {type(layer) for layer in theirs} == {MaxPool2d}
    assert theirs(x).equal(expected)
    assert str(theirs) == text
    with_indices = nn.Sequential(nn.MaxPool2d(2, return_indices=True))
    indices = with_indices(x)[1]
    adopt_layers(with_indices)
    assert with_indices(x)[1].equal(indices)
