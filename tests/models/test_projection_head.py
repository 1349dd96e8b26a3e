"""The projection head of MOON's authors: what it adds to a network, and where it cannot be had."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from fl_platform import models
from fl_platform.algorithms.moon import Moon
from fl_platform.errors import UserError
from fl_platform.models import vgg11
from fl_platform.models.head import add_projection_head
from fl_platform.models.layers import Pass
from fl_platform.models.network import Network, Output

OWN = "tests.models.own_modules."
SMALL = {
    "mlp": (1, 8, 8),
    "lenet5": (3, 16, 16),
    "vgg11": (3, 32, 32),
    "resnet20": (1, 8, 8),
    OWN + "Plain": (1, 8, 8),
}


def small(name: str, projection_width: int | None, monkeypatch: pytest.MonkeyPatch) -> Network:
    monkeypatch.setattr(vgg11, "GROUPS", tuple(tuple(4 for _ in group) for group in vgg11.GROUPS))
    width = 4 if name == "resnet20" else None
    generator = torch.Generator().manual_seed(3)
    adapt = None if projection_width is None else partial(add_projection_head, width=projection_width)
    built = models.build(name, SMALL[name], 10, width=width, generator=generator, adapt=adapt)
    return Network(built.double())


def forward(network: Network, x: torch.Tensor, train: bool = False) -> Output:
    weights = network.parameters.views(network.initial_params)
    return network.single(weights, network.initial_buffers.clone(), x, Pass(train, key=torch.tensor(5)))


def pixels(name: str) -> torch.Tensor:
    return torch.randn(4, *SMALL[name], generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "width", "features", "without"),
    [
        ("mlp", (1, 28, 28), 10, None, 100, 178_710),
        ("lenet5", (3, 32, 32), 10, None, 128, 941_834),
        ("vgg11", (3, 32, 32), 100, None, 128, 9_304_548),
        ("resnet20", (3, 64, 64), 200, None, 256, 4_376_584),
        ("resnet20", (3, 64, 64), 200, 16, 64, 284_824),
    ],
)
def test_the_head_is_two_linear_layers_before_the_classifier(name, shape, classes, width, features, without):
    network = Network(models.build(name, shape, classes, width=width, adapt=partial(add_projection_head, width=256)))
    tail = dict(list(zip(network.parameters.names, network.parameters.shapes, strict=True))[-6:])
    assert tail == {
        "output.hidden.weight": (features, features),
        "output.hidden.bias": (features,),
        "output.projection.weight": (256, features),
        "output.projection.bias": (256,),
        "output.classifier.weight": (classes, 256),
        "output.classifier.bias": (classes,),
    }
    added = (features + 1) * features + (features + 1) * 256 + 257 * classes - (features + 1) * classes
    assert network.parameters.dim == without + added


@pytest.mark.parametrize("name", SMALL)
def test_the_representation_is_the_output_of_the_head(name, monkeypatch):
    """In training mode too, where dropout of the encoder acts before the head and none after it."""
    network, x = small(name, 20, monkeypatch), pixels(name)
    weight, bias = network.parameters.views(network.initial_params)[-2:]
    for train in (False, True):
        out = forward(network, x, train)
        assert out.features.shape == (4, 20)
        assert torch.allclose(F.linear(out.features, weight, bias), out.logits, rtol=0, atol=1e-12)
    bare = forward(small(name, None, monkeypatch), x)
    hidden_weight, hidden_bias, *last = network.parameters.views(network.initial_params)[-6:-2]
    expected = F.linear(F.relu(F.linear(bare.features, hidden_weight, hidden_bias)), *last)
    assert torch.allclose(forward(network, x).features, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SMALL)
def test_the_layers_before_the_head_start_as_they_do_without_it(name, monkeypatch):
    with_head, without = small(name, 256, monkeypatch), small(name, None, monkeypatch)
    encoder = without.parameters.segments[-2][0]
    assert with_head.parameters.names[:-6] == without.parameters.names[:-2]
    assert torch.equal(with_head.initial_params[:encoder], without.initial_params[:encoder])
    assert len(with_head.blocks) == len(without.blocks)


@pytest.mark.parametrize("name", SMALL)
def test_a_stack_of_networks_with_a_head_equals_one_after_another(name, monkeypatch):
    network, x = small(name, 20, monkeypatch), pixels(name).repeat(3, 1, 1, 1, 1)
    params = torch.stack([network.initial_params * factor for factor in (0.9, 1.0, 1.1)])
    stacked = network.stacked(
        network.parameters.views(params), network.initial_buffers, x, None, torch.arange(3), train=False
    )
    for row in range(3):
        weights = network.parameters.views(params[row])
        alone = network.single(weights, network.initial_buffers, x[row], Pass(train=False))
        assert torch.allclose(stacked.features[row], alone.features, rtol=0, atol=1e-10)
        assert torch.allclose(stacked.logits[row], alone.logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Convolutional", "no layer inside it is an nn.Linear"),
        ("IsLinear", "no layer inside it is an nn.Linear"),
        ("ConvolutionLast", "its last linear layer, rows, gives 8 numbers, not the logits"),
        ("ReadsWeight", "it does not call its last linear layer, output, on one vector per sample"),
        ("PositionsVote", "it does not call its last linear layer, output, on one vector per sample"),
    ],
)
def test_a_module_without_a_place_for_the_head_is_refused(name, reason):
    assert models.build(OWN + name, (1, 8, 8), 10) is not None
    refusal = (
        rf"model\.name={OWN}{name} cannot be given a projection head \(algorithm\.projection_head=true\): {reason}$"
    )
    with pytest.raises(UserError, match=refusal):
        models.build(OWN + name, (1, 8, 8), 10, adapt=Moon(projection_head=True).adapt_network)
