"""Embeddings and recurrent layers: PyTorch's own in the loop engine, written out in the stacked one."""

import numpy as np
import pytest
import torch
from torch import nn

from fl_platform import models
from fl_platform.data.partition import Partition
from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset
from fl_platform.errors import UserError
from fl_platform.federation.build import make_algorithm, make_network
from fl_platform.federation.module import FederatedModule
from fl_platform.models.recurrent import GRU, LSTM
from tests.federations import SIZES, described, make_config, train


class Tagger(nn.Module):
    """A network of a user's own: embedding, two recurrent layers of a kind, mean over time."""

    def __init__(self, kind="LSTM", embedding=None, **options):
        super().__init__()
        self.embedding = nn.Embedding(11, 6, **embedding or {})
        self.recurrent = getattr(nn, kind)(6, 8, **{"num_layers": 2, "batch_first": True} | options)
        self.output = nn.Linear(16 if self.recurrent.bidirectional else 8, 4)

    def forward(self, x):
        return self.output(self.recurrent(self.embedding(x))[0].mean(1))


def tokens(count, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 11, (count, 9), generator=generator).to(torch.uint8)
    return Samples(ids, ids[:, -3:].long().sum(1) % 4)


def federation(*args):
    config = make_config(*args)
    dataset = described(Dataset, name="made", num_classes=4, shape=(9,), features="tokens", num_tokens=11)
    offsets = np.concatenate([[0], np.cumsum(SIZES)]).astype(np.int64)
    partition = Partition(np.arange(offsets[-1]), offsets)
    network = make_network(config, dataset, make_algorithm(config))
    return config, FederatedModule(config, dataset, network, tokens(int(offsets[-1]), 0), tokens(60, 1), partition)


OURS = ("model.name=char_gru", "model.width=8")
OWN = "model.name=tests.engines.test_recurrent.Tagger"


@pytest.mark.parametrize(
    "args",
    [
        [*OURS, "algorithm.name=fedavg"],
        [*OURS, "algorithm.name=gradma"],
        [*OURS, "algorithm.name=moon", "algorithm.projection_head=true"],
        [*OURS, "algorithm.name=fedmlb"],
        [OWN, "model.options.kind=LSTM"],
        [OWN, "model.options.kind=GRU", "model.options.bias=false"],
        [OWN, "model.options.kind=LSTM", "model.options.bidirectional=true"],
        [OWN, "model.options.embedding={padding_idx: 3}"],
    ],
    ids=lambda args: " ".join(args[-2:]),
)
def test_loop_equals_stacked(args):
    loop, stacked = (train(*federation(*args, f"engine={engine}")) for engine in ("loop", "stacked"))
    torch.testing.assert_close(loop.params, stacked.params, rtol=1e-8, atol=1e-9)
    assert not torch.equal(loop.params, loop.module.network.initial_params.double())


@pytest.mark.parametrize(("kind", "ours"), [(nn.GRU, GRU), (nn.LSTM, LSTM)])
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bidirectional": True}], ids=str)
def test_steps_written_out_equal_pytorchs_layer(kind, ours, options):
    torch.manual_seed(0)
    reference = kind(3, 5, 2, **options).double()
    layer = ours(3, 5, 2, **options).double()
    layer.load_state_dict(reference.state_dict())
    x = torch.randn(4, 2, 6, 3, dtype=torch.float64)
    outputs, last = torch.vmap(layer)(x)
    for row in range(4):
        expected, expected_last = reference(x[row])
        torch.testing.assert_close(outputs[row], expected)
        torch.testing.assert_close(layer(x[row])[0], expected)
        pairs = zip(last, expected_last, strict=True) if kind is nn.LSTM else [(last, expected_last)]
        for found, wanted in pairs:
            torch.testing.assert_close(found[row], wanted)


@pytest.mark.parametrize("options", [{"dropout": 0.5}, {"kind": "RNN"}], ids=str)
def test_layers_that_workers_cannot_train_are_refused(options):
    with pytest.raises(UserError, match=r"layer 'recurrent' is a \w+ with .* nn\.GRU and nn\.LSTM are known"):
        models.build(f"{__name__}.Tagger", (9,), 4, features="tokens", num_tokens=11, options=options)


def test_the_padding_row_of_an_embedding_stays_zero():
    args = (OWN, "model.options.embedding={padding_idx: 3}")
    for engine in ("loop", "stacked"):
        done = train(*federation(*args, f"engine={engine}"))
        table = done.params[: 11 * 6].view(11, 6)
        assert done.module.network.parameters.names[0] == "embedding.weight"
        assert not table[3].any()
        assert table[4].any()


@pytest.mark.parametrize("options", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"sparse": True}], ids=str)
def test_embeddings_that_workers_cannot_train_are_refused(options):
    with pytest.raises(UserError, match=r"layer 'embedding' is an Embedding with .* none of them is possible"):
        models.build(f"{__name__}.Tagger", (9,), 4, features="tokens", num_tokens=11, options={"embedding": options})


def test_models_say_which_features_they_take():
    with pytest.raises(UserError, match=r"mlp takes images or numbers, .* has tokens; use model\.name=char_gru"):
        models.build("mlp", (9,), 4, features="tokens", num_tokens=11)
    with pytest.raises(UserError, match=r"char_gru takes tokens, .* has images; use model\.name=lenet5 \| mlp"):
        models.build("char_gru", (1, 8, 8), 4)
