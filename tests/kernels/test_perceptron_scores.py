"""Scores of a perceptron as machine code against the layers in float64 and the sums that other networks have."""

import math

import pytest
import torch
from torch import Tensor, nn

from fl_platform.engines.evaluation import sums_of
from fl_platform.models.layers import Pass
from fl_platform.models.network import Network
from tests.kernels.perceptrons import NETWORKS, UNIT, drawn, mlp, perceptron

NO_BUFFERS = torch.empty(0)


def logits_of(network: Network, flat: Tensor, buffers: Tensor, x: Tensor) -> Tensor:
    """What the kernel computes for samples of the first class."""
    labels = torch.zeros(len(x), dtype=torch.int64)
    return perceptron(network).scores(flat, buffers, x, labels, 2, keeps_logits=True)[1]


def told(*rows: list[float]) -> tuple[Network, Tensor, Tensor]:
    """A network whose logits are these, for samples that are its unit vectors."""
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(len(rows), len(rows[0]))))
    flat = torch.cat([torch.tensor(rows).t().flatten(), torch.zeros(len(rows[0]))])
    return network, flat, torch.eye(len(rows))


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("samples", [0, 1, 9, 64, 65, 301])
def test_logits_are_as_exact_as_those_of_the_layers(network, samples):
    flat, x, _ = drawn(network, samples)
    buffers, before = network.initial_buffers + 0.5, x.clone()
    plain, exact = (
        network.single(network.parameters.views(flat.to(kind)), buffers.to(kind), x.to(kind), Pass(train=False)).logits
        for kind in (torch.float32, torch.float64)
    )
    found = logits_of(network, flat, buffers, x)
    assert found.shape == exact.shape
    if samples:
        tolerance = max(3 * float((plain - exact).abs().max()), 16 * UNIT * float(exact.abs().max()))
        torch.testing.assert_close(found.double(), exact, rtol=0, atol=tolerance)
    assert x.equal(before)


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("samples", [0, 1, 16, 64, 101])
def test_losses_and_hits_are_those_of_the_logits(network, samples):
    flat, x, labels = drawn(network, samples)
    classes = perceptron(network).chain.classes
    sums, logits = perceptron(network).scores(flat, network.initial_buffers, x, labels, classes, keeps_logits=True)
    expected = sums_of(logits.double(), labels, classes)
    assert sums[1:].equal(expected[1:])
    torch.testing.assert_close(sums[0], expected[0], rtol=4 * UNIT, atol=4 * UNIT * max(1, samples))
    alone, none = perceptron(network).scores(flat, network.initial_buffers, x, labels, classes, keeps_logits=False)
    assert none is None
    assert alone.equal(sums)


def test_a_sample_has_the_same_scores_whatever_stands_beside_it():
    network = NETWORKS["MNIST"]
    flat, x, _ = drawn(network, 130)
    whole = logits_of(network, flat, network.initial_buffers, x)
    for rows in (slice(0, 1), slice(3, 20), slice(63, 66), slice(100, 130)):
        assert logits_of(network, flat, network.initial_buffers, x[rows]).equal(whole[rows])


def test_the_first_of_the_largest_logits_is_the_class_found():
    network, flat, x = told([1.0, 2.0, 2.0], [3.0, 3.0, 1.0], [-1.0, -2.0, -1.0], [0.0, 0.0, 0.0])
    for label, hits in ((0, 3), (1, 1), (2, 0)):
        sums, _ = perceptron(network).scores(flat, NO_BUFFERS, x, torch.full((4,), label), 3, keeps_logits=False)
        assert sums[1 + label] == hits
        assert sums[4:].tolist() == [4.0 if k == label else 0.0 for k in range(3)]


@pytest.mark.parametrize("gap", [0.0, 1e-3, 1.0, 20.0, 80.0, 86.0, 90.0, 1e4, 1e30])
def test_losses_near_and_far(gap):
    """log(1 + e^-gap) and gap more."""
    network, flat, x = told([gap, 0.0])
    for label, expected in ((0, math.log1p(math.exp(-gap))), (1, gap + math.log1p(math.exp(-gap)))):
        sums, logits = perceptron(network).scores(flat, NO_BUFFERS, x, torch.tensor([label]), 2, keeps_logits=True)
        assert float(sums[0]) == pytest.approx(expected, rel=2e-7, abs=2e-7)
        assert float(sums[0]) == pytest.approx(float(sums_of(logits, torch.tensor([label]), 2)[0]), rel=2e-7, abs=2e-7)


@pytest.mark.parametrize("row", [[math.nan, 1.0], [1.0, math.nan], [math.inf, 1.0], [1.0, -math.inf], [-math.inf] * 2])
def test_what_is_not_finite_is_scored_as_by_torch(row):
    network, flat, x = told([0.0, 0.0])
    flat = torch.cat([torch.zeros(2), torch.tensor(row)])
    for label in (0, 1):
        sums, logits = perceptron(network).scores(flat, NO_BUFFERS, x, torch.tensor([label]), 2, keeps_logits=True)
        expected = sums_of(logits, torch.tensor([label]), 2)
        assert sums[1:].equal(expected[1:])
        torch.testing.assert_close(sums[0], expected[0], equal_nan=True, rtol=0, atol=1e-6)


def test_one_sample_that_is_not_finite_leaves_the_others():
    network = mlp("none")
    flat, x, _ = drawn(network, 80)
    x[3, 0] = torch.nan
    logits = logits_of(network, flat, NO_BUFFERS, x)
    assert logits.isnan().any(dim=1).tolist() == [row == 3 for row in range(80)]


def test_images_in_any_layout_are_the_same_samples():
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 5, 3)))
    images = torch.randn(6, 3, 4, 5)
    laid_out = images.contiguous(memory_format=torch.channels_last)
    params, buffers = network.initial_params, network.initial_buffers
    expected = logits_of(network, params, buffers, images)
    assert logits_of(network, params, buffers, laid_out).equal(expected)
    assert logits_of(network, params, buffers, images.repeat_interleave(2, dim=0)[::2]).equal(expected)


def test_labels_samples_and_statistics_that_do_not_fit_are_refused():
    network = mlp("batch")
    kernel, (flat, x, labels), buffers = perceptron(network), drawn(network, 8), network.initial_buffers
    for label in (-1, 4, 2**40):
        wrong = labels.clone()
        wrong[2] = label
        sums, _ = kernel.scores(flat, buffers, x, wrong, 4, keeps_logits=False)
        assert sums[0].isnan()
        assert sums[5:].sum() == 7
    for other in (labels[1:], labels.int(), labels[:, None]):
        with pytest.raises(RuntimeError, match="given for 8 samples"):
            kernel.scores(flat, buffers, x, other, 4, keeps_logits=False)
    for samples in (x[:, :-1], x.double()):
        with pytest.raises(RuntimeError, match="the first layer takes 30 of"):
            kernel.scores(flat, buffers, samples, labels, 4, keeps_logits=False)
    with pytest.raises(RuntimeError, match=f"the network has {len(buffers)} buffers of"):
        kernel.scores(flat, buffers[1:], x, labels, 4, keeps_logits=False)
