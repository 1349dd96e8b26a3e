"""Compiled maxima of convolutions beside torch's own layers, in float32 and under autocast, both against float64."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from fl_platform.kernels import convolution
from tests.kernels.convolved import (
    FLOAT,
    KINDS,
    NARROW,
    SHAPES,
    Case,
    Function,
    case,
    compiled,
    exact,
    in_both_passes,
    leaves_of,
    needs_bfloat16,
    plain,
    rounded,
    wanted,
)


@pytest.fixture(autouse=True)
def _small_layers_are_compiled_too(monkeypatch):
    monkeypatch.setattr(convolution, "WORTH_IT", 1)


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
    assert len(found) == 4
    for one, other in zip(found[2:], double[2:], strict=True):
        assert (one.double() - other).norm() < 1e-5 * other.norm()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["first of LeNet-5", "second of LeNet-5"])
def test_layers_without_bias(name, kind):
    given = case(SHAPES[name], has_bias=False)
    found, double = in_both_passes(compiled, given, True, kind), in_both_passes(exact, rounded(given, kind), True)
    assert len(found) == (3 if given.weight.shape[1] == 32 else 2)
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
        leaves = leaves_of(given)
        squares = function(Case(*leaves), True, kind).square().sum()
        gradients = torch.autograd.grad(squares, wanted(leaves), create_graph=True)
        return list(torch.autograd.grad(sum(one.square().sum() for one in gradients), wanted(leaves)[:-1]))

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
    x = torch.ones(1, 32, 4, 4).to(kind).contiguous(memory_format=torch.channels_last).requires_grad_()
    weight, bias = torch.zeros(32, 32, 3, 3), torch.linspace(-2, 0.5, 32)
    weight[:, 5, 0, 0] = 1
    given = Case(x, weight.requires_grad_(), bias)
    for is_rectified, count in ((False, 32), (True, int((1 + bias > 0).sum()))):
        found = compiled(given, is_rectified, kind)
        of_x, of_weight = torch.autograd.grad(found.sum(), [x, weight])
        assert of_x[0, 5].flatten().tolist() == [count, *[0] * 15]
        assert of_x.sum() == count
        assert of_weight.sum() == count * 9 * 32
