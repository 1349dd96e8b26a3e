"""MOON and MOONM on the network of MOON's authors."""

import dataclasses

import pytest
import torch

from fl_platform.algorithms.fedavg import FedAvg
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.errors import UserError
from fl_platform.federation.build import build, make_algorithm
from fl_platform.models import vgg11
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from tests.algorithms.trajectories import DROPOUT, PLAIN
from tests.federations import make_config, make_module, synthetic_dataset, train

HEAD = "algorithm.projection_head=true"
METHODS = pytest.mark.parametrize("name", ["moon", "moonm"])
SHAPES = {"mlp": (1, 4, 4), "lenet5": (3, 16, 16), "vgg11": (3, 32, 32), "resnet20": (1, 8, 8)}


@METHODS
@pytest.mark.parametrize("model", SHAPES)
def test_engines_agree_on_every_architecture(name, model, monkeypatch):
    """Three rounds with few workers: in the last ones workers have a last model of their own."""
    monkeypatch.setattr(vgg11, "GROUPS", tuple(tuple(4 for _ in group) for group in vgg11.GROUPS))
    args = (f"algorithm.name={name}", HEAD, f"model.name={model}", "cohort_size=2", "local_steps=2", "batch_size=4")
    width = ("model.width=4",) if model == "resnet20" else ()
    loop, stacked = (
        train(
            make_config(*args, *width, f"engine={engine}", workers=3),
            sizes=(4, 5, 9),
            dataset=synthetic_dataset(SHAPES[model]),
        )
        for engine in ("loop", "stacked")
    )
    assert torch.allclose(loop.params, stacked.params, rtol=0, atol=1e-10)
    assert torch.allclose(loop.module.global_buffers, stacked.module.global_buffers, rtol=0, atol=1e-10)


@METHODS
@pytest.mark.parametrize("model", [PLAIN, DROPOUT])
def test_engines_agree_on_a_users_module(name, model):
    args = (f"algorithm.name={name}", HEAD, model)
    loop, stacked = (train(make_config(*args, f"engine={engine}")) for engine in ("loop", "stacked"))
    assert loop.module.network.parameters.names[-2:] == ("2.classifier.weight", "2.classifier.bias")
    assert torch.allclose(loop.params, stacked.params, rtol=0, atol=1e-10)


@METHODS
@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_resumed_run_equals_an_uninterrupted_one(name, engine, tmp_path):
    config = make_config(f"algorithm.name={name}", HEAD, f"engine={engine}", "num_rounds=4")
    whole = train(config)
    train(dataclasses.replace(config, num_rounds=2), checkpoints=tmp_path)
    [(round, newest), *_] = sorted_checkpoints(tmp_path)
    resumed = train(config, resume=newest)
    assert round == 2
    assert torch.equal(whole.params, resumed.params)
    assert whole.figures() == resumed.figures()


@METHODS
def test_without_its_loss_it_is_fedavg_on_the_same_network(name):
    """R3; MOONM without momentum."""
    fields = ["algorithm.mu=0", *["algorithm.momentum_decay=0"] * (name == "moonm")]
    config = make_config(f"algorithm.name={name}", HEAD, *fields)
    moon, fedavg = train(config), train(config, make_module(config), algorithm=FedAvg())
    assert torch.allclose(moon.params, fedavg.params, rtol=0, atol=1e-12)


def test_the_contrastive_loss_reaches_the_head():
    """In the first round z_prev = z_glob: no gradient, FedAvg. Later the head itself differs from FedAvg's."""
    for rounds in (1, 4):
        config = make_config("algorithm.name=moon", HEAD, f"num_rounds={rounds}")
        module = make_module(config)
        layout = module.network.parameters
        start, stop = layout.segments[layout.names.index("output.hidden.weight")]
        moon, plain = train(config, module), train(config, make_module(config), algorithm=FedAvg())
        assert torch.allclose(moon.params, plain.params, rtol=0, atol=1e-12) == (rounds == 1)
        assert torch.allclose(moon.params[start:stop], plain.params[start:stop], rtol=0, atol=1e-6) == (rounds == 1)


@METHODS
def test_the_head_makes_another_experiment(name):
    with_head, without = (resolve(make_config(f"algorithm.name={name}", *args)) for args in ((HEAD,), ()))
    assert with_head.run_id != without.run_id
    assert with_head.group_id != without.group_id


@pytest.mark.parametrize(("head", "dim"), [("true", 178_710 + 10_100 + 25_856 + 2_570 - 1_010), ("false", 178_710)])
def test_an_experiment_is_built_with_the_network_its_algorithm_asks_for(head, dim):
    """64 pixels of digits instead of 784 of MNIST."""
    args = ["algorithm.name=moon", f"algorithm.projection_head={head}", "data.name=digits", "model.name=mlp"]
    config = resolve(compose([*args, "tracking.mode=disabled"])).config
    module = build(config, make_algorithm(config))
    assert module.global_params.numel() == dim - 200 * (784 - 64)


def test_where_there_is_no_place_for_the_head_building_says_so():
    args = ["algorithm.name=moon", HEAD, "data.name=digits", "model.name=tests.models.own_modules.Convolutional"]
    config = resolve(compose([*args, "tracking.mode=disabled"])).config
    with pytest.raises(UserError, match=r"Convolutional cannot be given a projection head.*no layer inside it"):
        build(config, make_algorithm(config))


def test_a_method_without_the_field_refuses_it():
    with pytest.raises(UserError, match=r"algorithm\.projection_head=True: fedavg has no such field.*moon, moonm have"):
        make_config("algorithm.name=fedavg", HEAD)


def test_a_model_without_a_representation_is_refused():
    config = make_config("algorithm.name=moon", "model.name=tests.models.own_modules.Convolutional")
    module = make_module(config, dataset=synthetic_dataset((1, 8, 8), 10))
    with pytest.raises(UserError, match=r"algorithm\.name=moon needs a model with a linear layer"):
        train(config, module)
