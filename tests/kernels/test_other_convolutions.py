"""Which maxima of convolutions are left to torch, and what is compiled ahead."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from fl_platform.kernels import convolution, machine_code
from fl_platform.models import registry
from fl_platform.models.layers import MaxPool2d, Pass, running
from fl_platform.models.network import Network
from tests.kernels.convolved import FLOAT, NARROW, SHAPES, case, compiled, layers_of, needs_bfloat16, plain


@pytest.fixture(autouse=True)
def _small_layers_are_compiled_too(monkeypatch):
    monkeypatch.setattr(convolution, "WORTH_IT", 1)


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
    first = case(SHAPES["first of LeNet-5"]).x
    assert suits(first, nn.Conv2d(3, 32, 5), pool)
    assert not suits(first.clone().requires_grad_(), nn.Conv2d(3, 32, 5), pool)
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
    for kind, modules in machine_code.WITH_AVX512.items():
        for module, functions in modules.items():
            is_there = functions.keys() <= machine_code.ENTRIES.get(module, {}).keys()
            assert is_there == convolution.is_multiplied(getattr(torch, kind))


@needs_bfloat16
def test_few_maxima_and_many_weights_are_left_to_torch(monkeypatch):
    monkeypatch.undo()
    x, layer, pool = case(SHAPES["second of LeNet-5"]).x, nn.Conv2d(32, 64, 5), MaxPool2d(2)
    assert not suits(x, layer, pool)  # seven times 25 maxima
    twice = torch.cat([x, x]).contiguous(memory_format=torch.channels_last)
    assert suits(twice, layer, pool)
    wide = torch.zeros(64, 512, 6, 6).contiguous(memory_format=torch.channels_last)
    assert not suits(wide, nn.Conv2d(512, 1024, 3, device="meta").to_empty(device="cpu"), pool)


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
