"""What is built from a resolved configuration: data, network, module, algorithm; plugins; what is refused."""

import dataclasses
import sys

import pytest
import torch

from fl_platform.algorithms.fedavg import FedAvg
from fl_platform.algorithms.fedavgm import FedAvgM
from fl_platform.algorithms.gradma import ServerQPOptions
from fl_platform.config.compose import compose
from fl_platform.config.registry import ALGORITHMS, DATASETS, MODELS
from fl_platform.config.resolve import resolve
from fl_platform.config.schema import to_dict
from fl_platform.errors import UserError
from fl_platform.federation.build import build, make_algorithm
from tests.federations import make_config, make_module, train

SMALL = ("num_workers=6", "cohort_size=2", "num_rounds=2")


def resolved(*args):
    return resolve(compose(list(args))).config


def built(config):
    return build(config, make_algorithm(config))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["num_workers=5000"], "num_workers=5000 is not possible with 1437 training samples"),
        (
            ["data.name=mnist", "data.root=/nowhere"],
            "data.name=mnist is not there .*get it with `python -m fl_platform data get mnist --root /nowhere`",
        ),
        (["data.partition=shards", "data.shards_per_worker=500"], "data.shards_per_worker=500 with num_workers=100"),
        (["data.validation_fraction=1e-9"], "data.validation_fraction=1e-09 holds out 0 of 1437"),
        (["model.name=tests.models.own_modules.Tied"], "model.name=tests.models.own_modules.Tied .*tied weights"),
        (
            ["batch_size=1", "model.norm=none", "model.name=tests.models.own_modules.Plain"],
            "batch_size=1 .*BatchNorm needs at least 2",
        ),
    ],
)
def test_what_the_data_or_the_model_forbid_is_refused_when_building(args, message, monkeypatch):
    monkeypatch.delenv("FL_DATA_ROOT", raising=False)
    config = resolved(*args)
    with pytest.raises(UserError, match=message):
        built(config)


def test_building_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    module = built(resolved(*SMALL))
    assert torch.equal(before, torch.get_rng_state())
    again = built(resolved(*SMALL))
    assert torch.equal(module.global_params, again.global_params)


def test_one_seed_fixes_partition_weights_cohorts_and_batches_for_every_algorithm():
    fedavg, gradma = (
        built(resolved(*SMALL, f"algorithm.name={name}", *extra))
        for name, extra in (("fedavg", ()), ("gradma", ("algorithm.memory_size=3",)))
    )
    assert torch.equal(fedavg.global_params, gradma.global_params)
    assert (fedavg.sizes == gradma.sizes).all()
    cohorts = [module.pool.sample(1).sampled for module in (fedavg, gradma)]
    assert (cohorts[0] == cohorts[1]).all()
    plans = [module.streams.draw(cohort, 3) for module, cohort in zip((fedavg, gradma), cohorts, strict=True)]
    assert (plans[0].indices == plans[1].indices).all()


PLUGIN = '''
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from torch import nn

from fl_platform.algorithms.base import Algorithm
from fl_platform import Dataset, Samples
from fl_platform.models import architecture


@dataclass(eq=False)
class Halved(Algorithm, name="halved"):
    """Half of FedAvg's step."""

    factor: float = 0.5

    def server_direction(self, updates):
        return self.factor * updates.mean_delta


@architecture("perceptron", "one linear layer")
def perceptron(shape, num_classes, *, norm, width):
    return nn.Sequential(OrderedDict(flat=nn.Flatten(), output=nn.Linear(int(np.prod(shape)), num_classes)))


class Blinking(Dataset, name="blinking"):
    """On or off."""

    num_classes = 2
    shape = (1, 2, 2)
    mean = std = (0.5,)
    default_model = "perceptron"

    def load(self, folder):
        def images(count):
            labels = np.arange(count) % 2
            return Samples.from_arrays((labels[:, None, None, None] * np.full((1, 2, 2), 255)).astype(np.uint8), labels)

        return images(40), images(20)
'''


def test_a_plugin_adds_an_algorithm_a_model_and_a_data_set(tmp_path, monkeypatch):
    (tmp_path / "outside_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    args = (*SMALL, "data.name=blinking", "data.partition=iid", "tracking.mode=disabled")
    with pytest.raises(UserError, match=r"data\.name=blinking is not known"):
        resolved(*args)
    try:
        halved = resolved(*args, "plugins=[outside_plugin]", "algorithm.name=halved")
        assert halved.algorithm == {"name": "halved", "factor": 0.5}
        assert halved.model.name == "perceptron"
        done = train(halved, built(halved))
        plain = resolved(*args, "server_lr=0.5")
        reference = train(plain, built(plain))
        assert torch.equal(done.params, reference.params)
        assert done.module.history[-1]["test/accuracy"] == 1.0
        assert resolved(*args, "plugins=[outside_plugin]").model.name == "perceptron"  # imported a second time
    finally:  # what is registered outlives the test otherwise
        for registry, name in ((ALGORITHMS, "halved"), (DATASETS, "blinking"), (MODELS, "perceptron")):
            registry._entries.pop(name, None)
        sys.modules.pop("outside_plugin", None)


def test_nested_values_become_the_options_an_algorithm_declares():
    args = ("algorithm.name=gradma_s", "algorithm.qp.scope=tensor", "algorithm.memory_size=20")
    algorithm = make_algorithm(resolved(*args))
    assert algorithm.qp == ServerQPOptions(scope="tensor")
    assert (algorithm.memory_size, algorithm.memory_policy) == (20, "least_frequent")


@pytest.mark.parametrize(("algorithms", "found"), [([], "none"), ([FedAvg(), FedAvgM()], "fedavg, fedavgm")])
def test_a_trainer_needs_exactly_one_algorithm(algorithms, found):
    import lightning as L

    config = make_config()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        callbacks=algorithms,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
    )
    with pytest.raises(UserError, match=f"exactly one algorithm among its callbacks, found {found}"):
        trainer.fit(make_module(config))


def test_the_configuration_of_a_module_is_the_one_given():
    config = make_config("seed=4")
    assert dataclasses.asdict(make_module(config).config) == to_dict(config)
