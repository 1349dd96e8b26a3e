"""Compiled dropout beside torch's own passes: the same bits."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fl_platform.kernels import dropout
from fl_platform.models import registry
from fl_platform.models.code import standing_for
from fl_platform.models.layers import Dropout, Pass, dropped, running
from fl_platform.models.network import Network

DTYPES = [torch.float32, torch.bfloat16]
SHAPES = [(1,), (7,), (64, 512), (3, 129), (1, 1), (2, 0, 5), (5, 3, 9, 7), (4, 6, 1, 1)]
KEYS = [0, 1, -1, 0x1234567890ABCDEF, -(1 << 63), (1 << 63) - 1, 0xFFFFFFFF, -(1 << 32)]
PROBABILITIES = [0.0, 0.1, 0.25, 0.3, 0.5, 0.999, 1.0]


def key_of(number: int) -> Tensor:
    return torch.tensor(number, dtype=torch.int64)


KEY = key_of(KEYS[3])


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def of_all_kinds(dtype: torch.dtype) -> Tensor:
    """All bfloat16 numbers, four times, and in float32 those that lie beside them."""
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).repeat(4)
    if dtype == torch.bfloat16:
        return bits.to(torch.int16).view(torch.bfloat16)
    return (bits * (1 << 16) + torch.tensor([0, 1, 0x7FFF, -1]).repeat_interleave(1 << 16)).to(torch.int32).view(dtype)


def assert_same_bits(found: Tensor, expected: Tensor) -> None:
    """Zeros of both signs are different, NaN are equal."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.stride() == expected.stride()
    assert torch.equal(found.isnan(), expected.isnan())
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[found.element_size()]
    bits = [x.contiguous().masked_fill(x.isnan(), 0).view(integers) for x in (found, expected)]
    assert bits[0].equal(bits[1])


def assert_like_torch(x: Tensor, key: Tensor = KEY, probability: float = 0.5, stream: int = 0) -> None:
    gradient = x.flatten().flip(0).view(x.shape)
    leaf, arguments = x.detach().requires_grad_(), (key, probability, stream, x.shape)
    found, expected = dropout.dropout(leaf, *arguments), dropped(leaf, *arguments)
    assert_same_bits(found.detach(), expected.detach())
    gradients = [torch.autograd.grad(kept, leaf, gradient)[0] for kept in (found, expected)]
    assert_same_bits(*gradients)
    with torch.no_grad():
        assert_same_bits(dropout.dropout(x, *arguments), expected.detach())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_those_of_torchs_passes(shape, dtype):
    x = numbers(*shape, dtype=dtype)
    assert dropout.suits(x, KEY, x.shape) == (x.numel() > 0)
    for probability in PROBABILITIES:
        assert_like_torch(x, probability=probability, stream=2)


@pytest.mark.parametrize("stream", [0, 1, 7, 1000])
@pytest.mark.parametrize("key", KEYS)
def test_all_keys_and_streams(key, stream):
    assert_like_torch(numbers(3, 111), key_of(key), 0.3, stream)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("probability", PROBABILITIES)
def test_all_kinds_of_numbers(probability, dtype):
    """Infinities become NaN where they are dropped, quotients are rounded as torch rounds them, zeros have a sign."""
    x = of_all_kinds(dtype)
    assert x.isnan().any()
    assert x.isinf().any()
    assert_like_torch(x, probability=probability)


def test_gradients_in_another_layout():
    x = numbers(6, 8)
    for loss in (lambda y: y.sum(), lambda y: (y.t() * torch.arange(6)).sum(), lambda y: y[:, 3].max()):
        gradients = []
        for function in (dropout.dropout, dropped):
            leaf = x.clone().requires_grad_()
            gradients += torch.autograd.grad(loss(function(leaf, KEY, 0.3, 0, x.shape)), leaf)
        assert gradients[0].equal(gradients[1])


def test_gradients_of_gradients_and_several_at_once():
    results = []
    for function in (dropout.dropout, dropped):
        leaf = numbers(3, 7).requires_grad_()
        kept = function(leaf * 2, KEY, 0.3, 1, leaf.shape)
        [first] = torch.autograd.grad((kept**3).sum(), leaf, create_graph=True)
        basis = torch.eye(kept.numel()).view(-1, *kept.shape)
        many = torch.autograd.grad(kept, leaf, basis, is_grads_batched=True, retain_graph=True)
        results.append((first, *torch.autograd.grad((first**2).sum(), leaf), *many))
    for found, expected in zip(*results, strict=True):
        assert found.equal(expected)
    assert len(results[0]) == 3


def test_other_tensors_are_left_to_torch():
    x = numbers(4, 6, 5, 3)
    others = (
        x.double(),
        x.half(),
        x[:, :, ::2],
        x.transpose(2, 3),
        x.contiguous(memory_format=torch.channels_last),
        x.expand(2, 4, 6, 5, 3),
        torch.complex(x, x).conj().imag,  # which is negated where it is read
    )
    for other in others:
        assert not dropout.suits(other, KEY, other.shape)
        assert_like_torch(other, probability=0.3)
    channels = (4, 6, 1, 1)
    assert not dropout.suits(x, KEY, channels)
    assert dropout.dropout(x, KEY, 0.5, 0, channels).equal(dropped(x, KEY, 0.5, 0, channels))
    assert not dropout.suits(x.to("meta"), KEY, x.shape)
    assert not dropout.suits(x, KEY.expand(4), x.shape)


def test_tensors_without_values_have_the_same_sizes():
    x = torch.empty(3, 4, device="meta").requires_grad_()
    with standing_for("cpu"):
        found = dropout.dropout(x, KEY.to("meta"), 0.5, 0, x.shape)
        [gradient] = torch.autograd.grad(found.sum(), x)
    assert found.shape == gradient.shape == x.shape


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # which torch.func.jvp imports
def test_transforms_of_functions_are_left_to_torch():
    x = numbers(2, 3, 4)

    def kept(x: Tensor, key: Tensor) -> Tensor:
        assert not dropout.suits(x, key, x.shape)
        return dropout.dropout(x, key, 0.5, 0, x.shape)

    keys = torch.stack([key_of(number) for number in KEYS[3:5]])
    expected = torch.stack([dropped(*pair, 0.5, 0, x.shape[1:]) for pair in zip(x, keys, strict=True)])
    assert torch.vmap(kept)(x, keys).equal(expected)
    assert torch.vmap(kept, in_dims=(None, 0))(x[0], keys).shape == x.shape
    slope = torch.func.grad(lambda x: kept(x, KEY).sum())(x)
    assert slope.equal(dropped(torch.ones_like(x), KEY, 0.5, 0, x.shape))
    assert torch.func.jvp(lambda x: kept(x, KEY), (x,), (torch.ones_like(x),))[1].equal(slope)


def test_checkpoints_run_a_layer_again():
    leaf, function = numbers(3, 5).requires_grad_(), dropout.dropout

    def layer(x: Tensor) -> Tensor:
        return function(x * 2, KEY, 0.5, 0, x.shape)

    [expected] = torch.autograd.grad(layer(leaf).square().sum(), leaf)
    for is_reentrant in (False, True):
        function = dropout.dropout
        found = checkpoint(layer, leaf, use_reentrant=is_reentrant).square().sum()
        function = dropped  # outside of the pass
        found.backward()
        assert leaf.grad.equal(expected)
        leaf.grad = None


def test_a_compiler_can_trace_a_layer():
    x = numbers(4, 6)
    compiled = torch.compile(lambda x: dropout.dropout(x, KEY, 0.5, 1, x.shape), backend="eager", fullgraph=True)
    assert compiled(x).equal(dropped(x, KEY, 0.5, 1, x.shape))


@pytest.mark.parametrize("channels", [False, True])
def test_layers_count_their_streams(channels):
    x, layer = numbers(3, 4, 5), Dropout(0.3, channels)
    found = []
    for function in (dropout.dropout, dropped):
        with running(Pass(True, key=KEY, dropout=function)):
            found += [layer(x), layer(x)]
    assert found[0].equal(found[2])
    assert found[1].equal(found[3])
    assert not found[0].equal(found[1])


@pytest.mark.parametrize(
    ("dtype", "autocast", "compiled"),
    [
        (torch.float32, None, torch.float32),
        (torch.float32, torch.bfloat16, torch.bfloat16),
        (torch.float64, None, None),
    ],
)
def test_what_a_network_needs_is_compiled_before_its_first_round(monkeypatch, dtype, autocast, compiled):
    asked = []
    monkeypatch.setattr(dropout, "compiled", lambda name, dtype: asked.append((name, dtype)))
    others = [registry.build("mlp", (1, 28, 28), 10), nn.Sequential(Dropout(channels=True), nn.Linear(2, 2))]
    for module in (registry.build("lenet5", (3, 32, 32), 10), *others):  # which need nothing
        dropout.compile_dropout(Network(module, autocast), dtype)
    assert asked == ([] if compiled is None else [("forward", compiled), ("backward", compiled)])
