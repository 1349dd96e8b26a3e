"""The paper's networks by name, a user's own by its dotted path, and what is refused."""

import copy

import pytest
import torch
from torch import nn

from fl_platform import models
from fl_platform.config.registry import MODELS
from fl_platform.errors import UserError
from fl_platform.models.layers import BatchNorm, Dropout, Pass
from fl_platform.models.network import Network
from fl_platform.models.recurrent import GRU

OWN = "tests.models.own_modules."


@pytest.mark.parametrize(
    ("name", "shape", "classes", "width", "parameters"),
    [
        ("mlp", (1, 28, 28), 10, None, 178_710),
        ("lenet5", (3, 32, 32), 10, None, 941_834),
        ("vgg11", (3, 32, 32), 100, None, 9_304_548),
        ("resnet20", (3, 64, 64), 200, None, 4_376_584),
        ("resnet20", (3, 64, 64), 200, 16, 284_824),
    ],
)
def test_parameter_counts_of_the_papers_models(name, shape, classes, width, parameters):
    assert Network(models.build(name, shape, classes, width=width)).parameters.dim == parameters


def test_the_mlp_is_the_released_one_layer_by_layer():
    module = models.build("mlp", (1, 28, 28), 10)
    shapes = [tuple(p.shape) for p in module.parameters()]
    assert shapes == [(200, 784), (200,), (200,), (200,), (100, 200), (100,), (100,), (100,), (10, 100), (10,)]
    norms = [layer for layer in module.modules() if isinstance(layer, BatchNorm)]
    assert [(layer.momentum, layer.eps) for layer in norms] == [(0.1, 1e-5)] * 2


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_norm_decides_which_layers_normalise(norm):
    kinds = {type(layer) for layer in models.build("resnet20", (3, 32, 32), 10, norm=norm, width=4).modules()}
    assert (BatchNorm in kinds, nn.GroupNorm in kinds) == (norm == "batch", norm == "group")


def test_initial_values_come_from_the_generator_alone():
    def values(seed):
        return Network(
            models.build("lenet5", (3, 32, 32), 10, generator=torch.Generator().manual_seed(seed))
        ).initial_params

    before = torch.get_rng_state()
    first, again, other = values(0), values(0), values(1)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_users_module_is_built_from_the_generator_even_where_it_is_lazy():
    def build(seed):
        generator = torch.Generator().manual_seed(seed)
        return Network(models.build(OWN + "Plain", (1, 8, 8), 10, options={"hidden": 4}, generator=generator))

    before = torch.get_rng_state()
    first, again, other = build(0), build(0), build(1)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first.initial_params, again.initial_params)
    assert not torch.equal(first.initial_params, other.initial_params)
    assert first.buffers.dim == 2 * (4 + 8)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("DrawsItself", {}, "draws random numbers itself"),
        ("ReturnsTuple", {}, "gives a tuple, not a tensor of logits"),
        ("NoParameters", {}, "has no parameters"),
        ("FixedNorm", {}, "BatchNorm layer 'norm' must be affine"),
        ("RunningInstanceNorm", {}, "layer 'norm' is a InstanceNorm2d"),
        ("Plain", {"classes": 7}, r"gives outputs of shape \(7,\) for 10 classes"),
        ("Plain", {"depth": 3}, "with model.options=.* cannot be built"),
        ("NOT_A_MODULE", {"obj": 3}, "is not a class derived from torch.nn.Module"),
        ("Nowhere", {}, "cannot be imported"),
    ],
)
def test_a_users_module_that_cannot_be_trained_is_refused(name, options, message):
    with pytest.raises(UserError, match=f"model.name={OWN}{name}.*{message}"):
        models.build(OWN + name, (1, 8, 8), 10, options=options)


@pytest.mark.parametrize("name", ["lenet", ".", ".lenet5", "lenet5.", "a..b", "a b.c", ""])
def test_a_name_that_is_neither_registered_nor_a_path_is_refused(name):
    with pytest.raises(
        UserError, match=r"model\.name=.*is not known; allowed: char_gru, lenet5, mlp, resnet20, tanh_mlp"
    ):
        models.build(name, (3, 32, 32), 10)


def test_what_does_not_apply_is_refused():
    with pytest.raises(UserError, match=r"model\.width=8 only applies to model\.name=char_gru \| resnet20, not to mlp"):
        models.build("mlp", (1, 28, 28), 10, width=8)
    with pytest.raises(UserError, match=r"model\.width=8 only applies to model\.name=char_gru \| resnet20"):
        models.build(OWN + "Plain", (1, 8, 8), 10, width=8)
    with pytest.raises(UserError, match=r"model\.options=.* only applies to a model given by its dotted path"):
        models.build("mlp", (1, 28, 28), 10, options={"hidden": 3})
    with pytest.raises(UserError, match=r"vgg11 needs images of at least 32x32 pixels, not 8x8"):
        models.build("vgg11", (1, 8, 8), 10)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match=r"model\.name=mlp is registered already"):
        models.architecture("mlp", "another")(lambda shape, num_classes, norm, width: nn.Sequential())
    assert {"mlp", "lenet5", "vgg11", "resnet20"} <= set(MODELS.names())


@pytest.fixture
def register():
    """Register a builder of networks of one's own for the length of a test; returns its name."""
    names = []

    def add(*layers):
        names.append(f"own{len(names)}")
        architecture = models.architecture(names[-1], "one's own")
        architecture(lambda shape, num_classes, norm, width: nn.Sequential(*(layer() for layer in layers)))
        return names[-1]

    yield add
    for name in names:
        MODELS._entries.pop(name)


def test_layers_of_a_registered_architecture_become_ours_too(register):
    name = register(
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout2d(0.1), nn.Flatten()),
        lambda: nn.Sequential(nn.Linear(144, 8), nn.Dropout(0.5)),
        lambda: nn.Linear(8, 10),
    )
    found = models.build(name, (1, 8, 8), 10)
    assert [type(layer) for layer in (found[0][1], found[0][2], found[1][1])] == [BatchNorm, Dropout, Dropout]
    network, x = Network(found), torch.randn(6, 1, 8, 8)
    weights = network.parameters.views(network.initial_params)

    def logits(key):
        return network.single(weights, network.initial_buffers, x, Pass(train=True, key=torch.tensor(key))).logits

    assert logits(1).equal(logits(1))
    assert not logits(1).equal(logits(2))


def test_layers_that_are_ours_already_stay():
    module = models.build("char_gru", (16,), 30, features="tokens", num_tokens=30)
    assert any(type(layer) is GRU for layer in module.modules())


def test_a_registered_architecture_that_cannot_be_trained_is_refused(register):
    name = register(nn.Flatten, lambda: nn.BatchNorm1d(64, affine=False), lambda: nn.Linear(64, 10))
    with pytest.raises(
        UserError, match=rf"model\.name={name} cannot be trained by workers: BatchNorm layer '1' must be"
    ):
        models.build(name, (1, 8, 8), 10)
    name = register(nn.Flatten, lambda: nn.Linear(64, 10), lambda: nn.RReLU())
    with pytest.raises(UserError, match=rf"model\.name={name} draws random numbers itself"):
        models.build(name, (1, 8, 8), 10)


def relu_before_pooling(module: nn.Module) -> nn.Module:
    """The network with every pair of MaxPool2d and ReLU in the usual order."""
    for name, child in module.named_children():
        if isinstance(child, nn.Sequential):
            layers = list(relu_before_pooling(child))
            for place in range(len(layers) - 1):
                if isinstance(layers[place], nn.MaxPool2d) and isinstance(layers[place + 1], nn.ReLU):
                    layers[place : place + 2] = layers[place + 1], layers[place]
            setattr(module, name, nn.Sequential(*layers))
    return module


@pytest.mark.parametrize(("name", "layout"), [("lenet5", torch.channels_last), ("vgg11", torch.contiguous_format)])
def test_pooling_before_relu_changes_no_bit(name, layout):
    ours = models.build(name, (3, 32, 32), 10, generator=torch.Generator().manual_seed(3)).eval()
    usual = relu_before_pooling(copy.deepcopy(ours))
    assert str(usual) != str(ours)
    x = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(1)).contiguous(memory_format=layout)
    out, expected = ours(x), usual(x)
    assert torch.equal(out, expected)
    for network, logits in ((ours, out), (usual, expected)):
        logits.square().sum().backward()
        assert all(parameter.grad is not None for parameter in network.parameters())
    for own, other in zip(ours.parameters(), usual.parameters(), strict=True):
        assert torch.equal(own.grad, other.grad)
