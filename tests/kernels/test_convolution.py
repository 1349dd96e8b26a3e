"""Compiled maxima of convolutions beside torch's own layers, in float32 and under autocast, both against float64."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from fl_platform.kernels import convolution, machine_code
from fl_platform.models import registry
from fl_platform.models.layers import ConvolvedMaxima, MaxPool2d, Pass, running
from fl_platform.models.network import Network

FLOAT, NARROW = torch.float32, torch.bfloat16
needs_bfloat16 = pytest.mark.skipif(not convolution.is_multiplied(NARROW), reason="the processor has no AVX512-BF16")
KINDS = [
    pytest.param(FLOAT, marks=pytest.mark.skipif(not convolution.is_multiplied(FLOAT), reason="it has no AVX-512")),
    pytest.param(NARROW, marks=needs_bfloat16),
]


class Shape(NamedTuple):
    images: int
    channels: int
    height: int
    width: int
    outputs: int
    kernel: tuple[int, int] = (5, 5)


SHAPES = {
    "first of LeNet-5": Shape(7, 3, 32, 32, 32),
    "second of LeNet-5": Shape(7, 32, 14, 14, 64),
    "one image": Shape(1, 32, 14, 14, 64),
    "one image of one channel": Shape(1, 1, 28, 28, 32),
    "one maximum": Shape(3, 32, 6, 6, 32),
    "sides that are not even": Shape(5, 3, 13, 16, 32, (4, 3)),
    "one pixel under the kernel": Shape(3, 7, 4, 6, 96, (1, 1)),
    "one number under the kernel": Shape(3, 1, 5, 4, 32, (1, 1)),
    "rows of two and a half vectors": Shape(3, 16, 9, 12, 32),
    "rows of more than one and a half": Shape(3, 10, 9, 12, 32),
    "six vectors a row": Shape(3, 64, 8, 10, 64, (3, 3)),
    "six rows of five vectors": Shape(2, 32, 9, 8, 32, (6, 5)),
    "rows of four pixels": Shape(2, 32, 9, 8, 32, (2, 4)),
    "more images than a block": Shape(70, 3, 16, 16, 32, (3, 3)),
}


class Case(NamedTuple):
    x: Tensor
    weight: Tensor
    bias: Tensor | None


def case(shape: Shape, dtype: torch.dtype = torch.float32, has_bias: bool = True) -> Case:
    generator = torch.Generator().manual_seed(shape.height)
    x = torch.randn(shape[:4], generator=generator).to(dtype).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(shape.outputs, shape.channels, *shape.kernel, generator=generator)
    weight /= weight[0].numel() ** 0.5
    return Case(x, weight, torch.randn(shape.outputs, generator=generator) if has_bias else None)


def layers_of(case: Case, is_rectified: bool = False) -> ConvolvedMaxima:
    outputs, channels, *kernel = case.weight.shape
    layer = nn.Conv2d(channels, outputs, tuple(kernel), bias=case.bias is not None)
    for name in ("weight", "bias"):
        layer._parameters[name] = getattr(case, name)
    return ConvolvedMaxima(layer, MaxPool2d(2), is_rectified)


@contextmanager
def arithmetic(kind: torch.dtype) -> Iterator[None]:
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False, enabled=kind == NARROW):
        yield


def compiled(case: Case, is_rectified: bool = False, kind: torch.dtype = NARROW) -> Tensor:
    with arithmetic(kind), running(Pass(True, maxima=convolution.maxima)):
        return layers_of(case, is_rectified)(case.x)


def plain(case: Case, is_rectified: bool = False, kind: torch.dtype = NARROW) -> Tensor:
    with arithmetic(kind):
        return layers_of(case, is_rectified)(case.x)


def exact(case: Case, is_rectified: bool = False, kind: torch.dtype = NARROW) -> Tensor:
    """The same without rounding."""
    found = F.max_pool2d(F.conv2d(*case), 2)
    return found.relu() if is_rectified else found


def rounded(case: Case, kind: torch.dtype = NARROW) -> Case:
    """The numbers that are multiplied, in float64."""
    x, weight, bias = case
    return Case(x.to(kind).double(), weight.to(kind).double(), None if bias is None else bias.double())


Function = Callable[[Case, bool, torch.dtype], Tensor]


def in_both_passes(function: Function, case: Case, is_rectified: bool, kind: torch.dtype = NARROW) -> list[Tensor]:
    """The maxima and their derivatives by all that the layer is given."""
    leaves = [None if part is None else part.detach().requires_grad_() for part in case]
    found = function(Case(*leaves), is_rectified, kind)
    gradient = torch.randn(found.shape, generator=torch.Generator().manual_seed(9)).to(kind).to(found.dtype)
    gradients = torch.autograd.grad(found, [leaf for leaf in leaves if leaf is not None], gradient)
    return [found.detach(), *gradients]


@pytest.mark.parametrize("is_rectified", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_layers_and_their_derivatives_are_as_exact_as_torchs(shape, kind, is_rectified):
    for dtype in {FLOAT, kind}:
        given = case(shape, dtype)
        found, expected = (in_both_passes(one, given, is_rectified, kind) for one in (compiled, plain))
        factor = 1.001 if kind == NARROW else 4
        for one, other, double in zip(
            found, expected, in_both_passes(exact, rounded(given, kind), is_rectified), strict=True
        ):
            assert one.shape == other.shape
            assert one.dtype == other.dtype
            distances = [(part.double() - double).norm() for part in (one, other)]
            assert distances[0] <= factor * distances[1] + 1e-7 * double.norm()
        assert found[0].is_contiguous(memory_format=torch.channels_last)
        apart = [(one[0].double() - exact(rounded(given, kind), is_rectified)).abs().max() for one in (found, expected)]
        assert apart[0] <= 4 * apart[1]
        with torch.no_grad():
            assert compiled(given, is_rectified, kind).equal(found[0])


@needs_bfloat16
def test_sums_of_gradients_are_not_rounded_to_bfloat16():
    given = case(SHAPES["second of LeNet-5"], torch.bfloat16)
    found, double = in_both_passes(compiled, given, True), in_both_passes(exact, rounded(given), True)
    for one, other in zip(found[2:], double[2:], strict=True):
        assert (one.double() - other).norm() < 1e-5 * other.norm()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["first of LeNet-5", "second of LeNet-5"])
def test_layers_without_bias(name, kind):
    given = case(SHAPES[name], has_bias=False)
    found, double = in_both_passes(compiled, given, True, kind), in_both_passes(exact, rounded(given, kind), True)
    assert len(found) == 3
    for one, other in zip(found, double, strict=True):
        assert (one.double() - other).norm() < 0.01 * other.norm()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wanted", [[0], [1], [2], [0, 1], [1, 2]], ids=str)
def test_derivatives_that_nobody_asks_for_are_left_out(wanted, kind):
    given = case(SHAPES["second of LeNet-5"], kind)
    expected = in_both_passes(compiled, given, True, kind)
    parts = [part.detach().requires_grad_(index in wanted) for index, part in enumerate(given)]
    found = compiled(Case(*parts), True, kind)
    gradient = torch.randn(found.shape, generator=torch.Generator().manual_seed(9)).to(kind)
    gradients = torch.autograd.grad(found, [parts[index] for index in wanted], gradient)
    assert all(one.equal(expected[1 + index]) for index, one in zip(wanted, gradients, strict=True))


@needs_bfloat16
def test_gradients_in_another_layout_or_negated():
    given = case(SHAPES["second of LeNet-5"], torch.bfloat16)
    weight = given.weight.clone().requires_grad_()
    found = compiled(Case(given.x, weight, given.bias), True)
    gradient = torch.randn(found.shape, generator=torch.Generator().manual_seed(9)).bfloat16()
    [expected] = torch.autograd.grad(found, weight, gradient, retain_graph=True)
    last = gradient.contiguous(memory_format=torch.channels_last)
    [other] = torch.autograd.grad(found, weight, last, retain_graph=True)
    assert other.equal(expected)
    one = torch.ones((), dtype=torch.bfloat16)
    [whole] = torch.autograd.grad(found, weight, one.expand(found.shape), retain_graph=True)
    [sums] = torch.autograd.grad(found.sum(), weight)
    assert whole.equal(sums)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["first of LeNet-5", "second of LeNet-5"])
def test_a_gradient_has_a_gradient_and_many_come_at_once(name, kind):
    given = case(SHAPES[name])

    def penalty(function: Function) -> list[Tensor]:
        leaves = [part.clone().requires_grad_() for part in given]
        gradients = torch.autograd.grad(function(Case(*leaves), True, kind).square().sum(), leaves, create_graph=True)
        return list(torch.autograd.grad(sum(one.square().sum() for one in gradients), leaves[:2]))

    for one, other in zip(penalty(compiled), penalty(exact), strict=True):
        assert (one - other).norm() < 0.05 * other.norm()
    weight = given.weight.clone().requires_grad_()
    found = compiled(given._replace(weight=weight), True, kind)
    rows = torch.randn(3, *found.shape, generator=torch.Generator().manual_seed(1)).to(kind)
    [many] = torch.autograd.grad(found, weight, rows, is_grads_batched=True, retain_graph=True)
    for one, row in zip(many, rows, strict=True):
        [alone] = torch.autograd.grad(found, weight, row, retain_graph=True)
        assert (one - alone).norm() < 0.01 * alone.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_has_the_same_bits_in_any_batch_and_on_any_thread(kind):
    given = case(SHAPES["more images than a block"])
    whole = compiled(given, kind=kind)
    assert torch.cat([compiled(given._replace(x=part), kind=kind) for part in given.x.split(9)]).equal(whole)
    expected = in_both_passes(compiled, given, True, kind)
    with ThreadPoolExecutor(4) as threads:
        many = list(threads.map(lambda _: in_both_passes(compiled, given, True, kind), range(12)))
    assert all(one.equal(other) for found in many for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["first of LeNet-5", "second of LeNet-5"])
def test_a_model_that_diverged_stays_so(name, kind):
    given = case(SHAPES[name])
    for value in (torch.nan, torch.inf):
        for part in ("weight", "bias"):
            broken = given._replace(**{part: torch.full_like(getattr(given, part), value)})
            assert not compiled(broken, kind=kind).isfinite().any()
        spoilt = given.x.clone()
        spoilt[0, 0, 5, 5] = value
        broken = given._replace(x=spoilt.contiguous(memory_format=torch.channels_last))
        found, expected = compiled(broken, True, kind), exact(rounded(broken, kind), True)
        assert found.isnan().equal(expected.isnan())
        assert found.isinf().equal(expected.isinf())
    found = in_both_passes(compiled, given._replace(bias=torch.full_like(given.bias, torch.nan)), True, kind)
    assert not found[0].isfinite().any()
    leaf = given.weight.clone().requires_grad_()
    maxima = compiled(given._replace(weight=leaf), kind=kind)
    [gradient] = torch.autograd.grad(maxima, leaf, torch.full_like(maxima, torch.nan))
    assert gradient.isnan().all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_of_equal_pixels_has_the_gradient_and_none_where_nothing_is_left(kind):
    x = torch.ones(1, 1, 2, 2, requires_grad=True)
    weight, bias = torch.ones(32, 1, 1, 1), torch.linspace(-2, 0.5, 32)
    given = Case(x, weight.requires_grad_(), bias)
    for is_rectified, count in ((False, 32), (True, int((1 + bias > 0).sum()))):
        found = compiled(given, is_rectified, kind)
        of_x, of_weight = torch.autograd.grad(found.sum(), [x, weight])
        assert of_x.flatten().tolist() == [count, 0, 0, 0]
        assert of_weight.sum() == count


class Subclass(Tensor):
    """A tensor of a user's own kind."""


def suits(x: Tensor, layer: nn.Conv2d, pool: MaxPool2d, autocast: torch.dtype = torch.bfloat16) -> bool:
    with torch.autocast("cpu", autocast, cache_enabled=False):
        found = convolution.maxima(x, layer, pool, False)
        assert (found is None) == (not convolution.suits(x, layer, pool))
        return found is not None


@needs_bfloat16
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # which forward gradients import
def test_other_layers_and_tensors_are_left_to_torch():
    given, pool = case(SHAPES["second of LeNet-5"]), MaxPool2d(2)
    x, layer = given.x, nn.Conv2d(32, 64, 5)
    assert suits(x, layer, pool)
    assert suits(x, nn.Conv2d(32, 64, 5, padding="valid"), MaxPool2d((2, 2), (2, 2)))
    assert convolution.suits(x, layer, pool)  # in float32
    assert not convolution.suits(x.bfloat16(), layer, pool)
    assert not convolution.suits(x.double(), layer.double(), pool)
    layer.float()
    assert not suits(x, layer, pool, torch.float16)
    others = (
        nn.Conv2d(32, 48, 5),
        nn.Conv2d(32, 64, 5, stride=2),
        nn.Conv2d(32, 64, 5, stride=(1, 2)),
        nn.Conv2d(32, 64, 5, padding=1),
        nn.Conv2d(32, 64, 5, padding="same"),
        nn.Conv2d(32, 64, 3, dilation=2),
        nn.Conv2d(32, 64, 5, groups=2),
        nn.Conv2d(32, 64, 5, padding=2, padding_mode="circular"),
        nn.Conv2d(32, 64, 14),
        nn.Conv2d(3, 64, 5),
        nn.Conv2d(32, 64, 5).double(),
        nn.Conv2d(32, 64, 5).bfloat16(),
    )
    assert not any(suits(x, other, pool) for other in others)
    for other in (MaxPool2d(3), MaxPool2d(2, 1), MaxPool2d(2, padding=1), MaxPool2d(2, ceil_mode=True)):
        assert not suits(x, layer, other)
    assert not suits(x, layer, MaxPool2d(2, return_indices=True))
    tensors = (x.double(), x.half(), x[0], x[:0], x.contiguous(), x[::2, :, ::2], x.to("meta"), x.as_subclass(Subclass))
    assert not any(convolution_suits(other, layer, pool) for other in tensors)
    with forward_ad.dual_level():
        assert not convolution_suits(forward_ad.make_dual(x, x), layer, pool)


def convolution_suits(x: Tensor, layer: nn.Conv2d, pool: MaxPool2d) -> bool:
    with torch.autocast("cpu", torch.bfloat16):
        return convolution.suits(x, layer, pool)


def test_processors_without_such_products_leave_all_to_torch(monkeypatch):
    monkeypatch.setattr(convolution, "is_multiplied", lambda dtype: False)
    given = case(SHAPES["second of LeNet-5"])
    for kind in (FLOAT, NARROW):
        assert compiled(given, True, kind).equal(plain(given, True, kind))
    asked = []
    monkeypatch.setattr(convolution, "compiled", lambda *names: asked.append(names))
    for autocast in (None, torch.bfloat16):
        network = Network(registry.build("lenet5", (3, 32, 32), 10, norm="none"), autocast)
        convolution.compile_convolution(network, torch.float32)
    assert not asked


def test_what_is_compiled_ahead_is_what_the_processor_has():
    for kind, modules in machine_code.CONVOLUTIONS.items():
        for module, functions in modules.items():
            is_there = functions.keys() <= machine_code.ENTRIES.get(module, {}).keys()
            assert is_there == convolution.is_multiplied(getattr(torch, kind))


@needs_bfloat16
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own decompositions
def test_transforms_of_functions_are_left_to_torch():
    given = case(SHAPES["first of LeNet-5"])
    layers = layers_of(given)

    def loss(weight: Tensor) -> Tensor:
        layers.convolution._parameters["weight"] = weight
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False), running(Pass(True, maxima=convolution.maxima)):
            assert not convolution.suits(given.x, layers.convolution, layers.pooling)
            return layers(given.x).float().square().mean()

    assert torch.func.grad(loss)(given.weight).shape == given.weight.shape
    assert torch.vmap(loss)(torch.stack([given.weight, 2 * given.weight])).shape == (2,)


@needs_bfloat16
def test_checkpoints_run_the_layers_again_outside_of_the_pass():
    given = case(SHAPES["second of LeNet-5"])
    x = given.x.clone().requires_grad_()
    for is_reentrant in (False, True):
        found = checkpoint(lambda x: compiled(given._replace(x=x), True), x, use_reentrant=is_reentrant)
        [gradient] = torch.autograd.grad(found.sum(), x) if not is_reentrant else [None]
        assert gradient is None or gradient.shape == x.shape


@needs_bfloat16
def test_a_compiler_can_trace_the_layers():
    given = case(SHAPES["second of LeNet-5"])
    traced = torch.compile(lambda x: plain(given._replace(x=x), True), backend="eager")
    assert traced(given.x).equal(plain(given, True))


@needs_bfloat16
@pytest.mark.parametrize(
    ("dtype", "autocast", "products"),
    [(torch.float32, None, torch.float32), (torch.float32, NARROW, NARROW), (torch.float64, None, None)],
)
def test_what_a_network_needs_is_compiled_before_its_first_round(monkeypatch, dtype, autocast, products):
    asked = []
    monkeypatch.setattr(convolution, "compiled", lambda name, dtype: asked.append((name, dtype)))
    for name, norm in (("lenet5", "none"), ("lenet5", "batch"), ("mlp", "none")):  # the others have none
        network = Network(registry.build(name, (3, 32, 32), 10, norm=norm), autocast)
        convolution.compile_convolution(network, dtype)
    names = ("forward", "of_weight", "of_images") if products else ()
    assert asked == [(name, products) for name in names]
