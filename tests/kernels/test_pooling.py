"""Compiled pooling of 2 x 2 pixels beside torch's own."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from fl_platform.kernels import pooling
from fl_platform.models import registry
from fl_platform.models.code import standing_for
from fl_platform.models.network import Network

DTYPES = [torch.float32, torch.bfloat16]
LAYOUTS = [torch.contiguous_format, torch.channels_last]
SHAPES = [(5, 3, 8, 6), (5, 3, 9, 7), (2, 40, 2, 3), (3, 1, 5, 4), (1, 33, 4, 34), (2, 16, 6, 70)]


def images(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Images with many ties, zeros of both signs among them."""
    generator = torch.Generator().manual_seed(sum(shape) + seed)
    values = torch.randint(-3, 4, shape, generator=generator) / 4
    return torch.where(torch.randint(2, shape, generator=generator) == 0, values, -values).to(dtype)


def with_all_kinds(x: Tensor) -> Tensor:
    """With NaN of both signs and infinities in a third of the places, and in whole windows."""
    kinds = torch.tensor([torch.nan, -torch.nan, torch.inf, -torch.inf], dtype=x.dtype)
    generator = torch.Generator().manual_seed(5)
    chosen = kinds[torch.randint(4, x.shape, generator=generator)]
    x = torch.where(torch.randint(3, x.shape, generator=generator) == 0, chosen, x)
    x[0, :, :2, :2] = -torch.inf
    x[-1, :, :2, :2] = torch.nan
    return x


def assert_same_bits(found: Tensor, expected: Tensor) -> None:
    """Zeros of both signs are different, NaN are equal."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert torch.equal(found.isnan(), expected.isnan())
    integers = {2: torch.int16, 4: torch.int32}[found.element_size()]
    bits = [x.contiguous().masked_fill(x.isnan(), 0).view(integers) for x in (found, expected)]
    assert bits[0].equal(bits[1])


def in_both_passes(x: Tensor, pool, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The maxima, and the gradient for one without ties."""
    leaf = x.detach().requires_grad_()
    found = pool(leaf, 2)
    generator = torch.Generator().manual_seed(seed)
    gradient = torch.randn(found.shape, generator=generator).to(x.dtype)
    return found.detach(), torch.autograd.grad(found, leaf, gradient)[0]


def assert_like_torch(x: Tensor) -> None:
    found, expected = in_both_passes(x, pooling.max_pool2d), in_both_passes(x, F.max_pool2d)
    for one, other in zip(found, expected, strict=True):
        assert_same_bits(one, other)
    for one, other in zip(found, expected, strict=True):
        for layout in LAYOUTS:
            assert one.is_contiguous(memory_format=layout) == other.is_contiguous(memory_format=layout)
    with torch.no_grad():
        assert_same_bits(pooling.max_pool2d(x, 2), expected[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_those_of_max_pool2d(shape, layout, dtype):
    x = images(*shape, dtype=dtype).contiguous(memory_format=layout)
    assert pooling.suits(x, 2)
    assert_like_torch(x)
    assert_like_torch(torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_that_diverged_stays_so(shape, layout, dtype):
    """Also the gradient of a NaN goes where torch's does."""
    x = with_all_kinds(images(*shape, dtype=dtype)).contiguous(memory_format=layout)
    assert_like_torch(x)
    assert pooling.max_pool2d(x, 2).isnan().any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_window_of_a_few_values(layout, dtype):
    values = torch.tensor([0.0, -0.0, 1.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    windows = torch.cartesian_prod(values, values, values, values).view(-1, 16, 2, 2)
    assert_like_torch(windows.contiguous(memory_format=layout))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_in_another_layout(dtype):
    """As behind nn.Flatten, and as of a sum."""
    x = images(3, 40, 6, 8, dtype=dtype).contiguous(memory_format=torch.channels_last)
    for loss in (
        lambda y: (y.flatten(1) * torch.arange(480).to(dtype)).sum(),
        lambda y: y.sum(),
        lambda y: y[:, 3].max(),
    ):
        gradients = []
        for pool in (pooling.max_pool2d, F.max_pool2d):
            leaf = x.clone().requires_grad_()
            gradients += torch.autograd.grad(loss(pool(leaf, 2)), leaf)
        assert_same_bits(*gradients)


def test_the_gradient_of_a_tie_goes_to_the_first_of_the_pixels():
    leaf = torch.zeros(1, 1, 2, 2, requires_grad=True)
    [found] = torch.autograd.grad((pooling.max_pool2d(leaf * 1, 2) * 3).sum(), leaf)
    assert found.flatten().tolist() == [3, 0, 0, 0]


@pytest.mark.parametrize("shape", [(3, 8, 6), (3, 9, 7)])
def test_gradients_of_gradients(shape):
    """A pixel of a polynomial's gradient has the polynomial's second derivative at the maximum, and others zero."""
    results = []
    for pool in (pooling.max_pool2d, F.max_pool2d):
        leaf = torch.randn(2, *shape, generator=torch.Generator().manual_seed(2)).requires_grad_()
        [first] = torch.autograd.grad((pool(leaf * 2, 2) ** 3).sum(), leaf, create_graph=True)
        results.append((first, *torch.autograd.grad((first**2).sum(), leaf)))
    for found, expected in zip(*results, strict=True):
        assert found.equal(expected)


def test_several_gradients_at_once():
    x = images(2, 3, 7, 6)
    found = []
    for pool in (pooling.max_pool2d, F.max_pool2d):
        leaf = x.clone().requires_grad_()
        y = pool(leaf, 2)
        basis = torch.eye(y.numel()).view(-1, *y.shape)
        found += torch.autograd.grad(y, leaf, basis, is_grads_batched=True)
    assert found[0].equal(found[1])


def test_several_threads():
    batches = [with_all_kinds(images(8, 24, 12, 12, seed=seed)) for seed in range(16)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda x: in_both_passes(x, pooling.max_pool2d), batches * 4))
    for x, pair in zip(batches * 4, found, strict=True):
        for one, expected in zip(pair, in_both_passes(x, F.max_pool2d), strict=True):
            assert_same_bits(one, expected)


OTHERS = {
    "kernel": {"kernel_size": 3},
    "one side": {"kernel_size": (2, 1)},
    "stride": {"kernel_size": 2, "stride": 1},
    "strides": {"kernel_size": 2, "stride": (2, 1)},
    "padding": {"kernel_size": 2, "padding": 1},
    "dilation": {"kernel_size": 2, "dilation": (1, 2)},
    "ceiling": {"kernel_size": 2, "ceil_mode": True},
}


@pytest.mark.parametrize("arguments", OTHERS.values(), ids=OTHERS)
def test_other_layers_are_left_to_torch(arguments):
    x = images(2, 3, 9, 7)
    assert not pooling.suits(x, **arguments)
    expected = F.max_pool2d(x, **arguments, return_indices=True)
    assert pooling.max_pool2d(x, **arguments).equal(expected[0])
    assert pooling.max_pool2d(x, **arguments, return_indices=True)[1].equal(expected[1])


def test_indices_are_torchs():
    x = images(2, 3, 8, 6)
    assert pooling.max_pool2d(x, 2, return_indices=True)[1].equal(F.max_pool2d(x, 2, return_indices=True)[1])


class Subclass(Tensor):
    """A tensor of a user's own kind."""


def test_other_tensors_are_left_to_torch():
    x = images(2, 3, 8, 6)
    others = (
        x.double(),
        x.half(),
        x[0],
        x[:0],
        x.transpose(2, 3),
        x[:, ::2],
        x.expand(4, 2, 3, 8, 6)[:, 0],
        torch.complex(x, x).conj().imag,  # which is negated where it is read
        x.as_subclass(Subclass),
    )
    for other in others:
        assert not pooling.suits(other, 2)
        assert_same_bits_of_any(pooling.max_pool2d(other, 2), F.max_pool2d(other, 2))
    assert not pooling.suits(x.to("meta"), 2)  # which stands for another device
    assert not pooling.suits(x.to_sparse(), 2)
    assert not pooling.suits(x.long(), 2)
    with pytest.raises(RuntimeError, match="Output size is too small"):
        pooling.max_pool2d(x[..., :1], 2)


def assert_same_bits_of_any(found: Tensor, expected: Tensor) -> None:
    assert type(found) is type(expected)
    assert torch.equal(found, expected)
    assert found.stride() == expected.stride()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_without_values_have_the_same_sizes(layout):
    x = torch.empty(2, 3, 9, 6, device="meta").contiguous(memory_format=layout).requires_grad_()
    with standing_for("cpu"):
        found = pooling.max_pool2d(x, 2)
        assert found.shape == (2, 3, 4, 3)
        assert found.is_contiguous(memory_format=layout)
        [gradient] = torch.autograd.grad(found.sum(), x)
        assert gradient.shape == x.shape


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # which torch.func.jvp imports
def test_transforms_of_functions_are_left_to_torch():
    x = torch.zeros(1, 1, 2, 2)

    def pooled(x: Tensor) -> Tensor:
        assert not pooling.suits(x, 2)
        return pooling.max_pool2d(x, 2).sum()

    assert torch.func.grad(pooled)(x).flatten().tolist() == [1, 0, 0, 0]
    assert torch.vmap(pooled)(torch.stack([x, x])).tolist() == [0, 0]
    with torch.no_grad():
        assert torch.func.grad(pooled)(x).flatten().tolist() == [1, 0, 0, 0]
    assert torch.func.jvp(pooled, (x,), (x + 2,))[1] == 2
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(pooled(forward_ad.make_dual(x, x + 2))).tangent == 2


def test_checkpoints_run_a_layer_again():
    leaf = images(2, 3, 8, 6).requires_grad_()
    pool = pooling.max_pool2d

    def layer(x: Tensor) -> Tensor:
        return pool(x * 2, 2)

    [expected] = torch.autograd.grad(layer(leaf).square().sum(), leaf)
    for is_reentrant in (False, True):
        pool = pooling.max_pool2d
        found = checkpoint(layer, leaf, use_reentrant=is_reentrant).square().sum()
        pool = F.max_pool2d  # outside of the pass
        found.backward()
        assert leaf.grad.equal(expected)
        leaf.grad = None


def test_a_compiler_can_trace_a_layer():
    x = images(2, 3, 8, 6)
    compiled = torch.compile(lambda x: pooling.max_pool2d(x, 2), backend="eager", fullgraph=True)
    assert compiled(x).equal(F.max_pool2d(x, 2))
    leaf = x.clone().requires_grad_()
    assert compiled(leaf).equal(F.max_pool2d(x, 2))


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
    monkeypatch.setattr(pooling, "compiled", lambda name, dtype: asked.append((name, dtype)))
    for name, shape in (("lenet5", (3, 32, 32)), ("mlp", (1, 28, 28))):  # which has no such layer
        pooling.compile_pooling(Network(registry.build(name, shape, 10), autocast), dtype)
    assert asked == ([] if compiled is None else [("forward", compiled), ("backward", compiled)])
