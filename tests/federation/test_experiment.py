"""What a run is: resolved keys, run ids, plugins, and what is refused before any work starts."""

import dataclasses
import sys

import pytest
import torch
import yaml
from fl_platform.federation.experiment import group_id, resolve, run_id

from fl_platform import models
from fl_platform.algorithms import base
from fl_platform.algorithms.fedavg import FedAvg
from fl_platform.algorithms.fedavgm import FedAvgM
from fl_platform.config.compose import compose
from fl_platform.config.schema import known_keys, to_dict
from fl_platform.data import datasets
from fl_platform.errors import UserError
from fl_platform.federation import experiment
from tests.federations import make_config, make_module, train

SMALL = ("num_workers=6", "cohort_size=2", "num_rounds=2")


def resolved(*words):
    return resolve(compose(list(words)))


def identifier(*words):
    return run_id(resolved(*words))


def test_keys_left_open_follow_the_data_set():
    config = resolved("data.name=tiny_imagenet")
    assert (config.num_rounds, config.model.name, config.evaluation.every) == (2000, "resnet20", 5)
    assert config.evaluation.targets == list(datasets.get("tiny_imagenet").targets)
    given = resolved(
        "data.name=tiny_imagenet", "num_rounds=3", "model.name=mlp", "evaluation.every=1", "evaluation.targets=[]"
    )
    assert (given.num_rounds, given.model.name, given.evaluation.every, given.evaluation.targets) == (3, "mlp", 1, [])


def test_resolving_twice_changes_nothing():
    config = resolved("algorithm.name=gradma", "data.name=mnist")
    assert resolve(config) == config


PLACEMENT = {
    "threads": "2",
    "device": "cpu",
    "engine": "stacked",
    "cohort_chunk": "1",
    "output.dir": "elsewhere",
    "data.root": "/data",
    "tracking.mode": "disabled",
    "tracking.project": "p",
    "tracking.entity": "e",
    "tracking.group": "g",
    "tracking.tags": "[a]",
    "checkpoint.every": "7",
    "checkpoint.keep_finished": "false",
    "state.device": "cpu",
    "memory.device": "cpu",
    "memory.shard": "true",
    "preset": "paper",
    "scenario": "null",
    "chosen": "null",
    "point": "null",
    "plugins": "[json]",
    "trainer": "{devices: 2, profiler: simple}",
}
IDENTITY = {
    "seed": "1",
    "data.name": "mnist",
    "data.partition": "iid",
    "data.validation_fraction": "0.1",
    "model.name": "lenet5",
    "model.norm": "group",
    "model.width": "16",
    "model.options": "{a: 1}",
    "num_workers": "50",
    "cohort_size": "5",
    "num_rounds": "7",
    "local_steps": "2",
    "batch_size": "8",
    "local_lr": "0.01",
    "server_lr": "0.1",
    "aggregation": "samples",
    "buffers": "server",
    "algorithm": "{name: fedprox}",
    "availability.name": "markov",
    "faults.kind": "nan",
    "faults.reject_nonfinite": "true",
    "evaluation.every": "3",
    "evaluation.targets": "[0.5]",
    "precision": "float64",
}
OF_GRADMA = {
    "qp.solver": "clarabel",
    "qp.scope": "tensor",
    "qp.worker_margin": "0.1",
    "qp.server_margin": "0.1",
    "qp.drop_threshold": "0.1",
    "memory.policy": "fifo",
}


SWITCHED = {
    "data.dirichlet_omega": ("0.5", "data.partition=dirichlet", "data.partition=iid"),
    "data.shards_per_worker": ("5", "data.partition=shards", "data.partition=dirichlet"),
    "availability.failure_probability": ("0.2", "availability.name=bernoulli", "availability.name=markov"),
    "availability.leave_probability": ("0.2", "availability.name=markov", "availability.name=bernoulli"),
    "availability.return_probability": ("0.2", "availability.name=markov", "availability.name=always"),
    "faults.probability": ("0.2", "faults.kind=nan", "faults.kind=none"),
    "faults.scale": ("7", "faults.kind=huge", "faults.kind=nan"),
}
"""Key -> (another value, the word under which it counts, a word under which it does not)."""


def test_these_lists_name_every_key():
    assert PLACEMENT.keys() | IDENTITY.keys() | OF_GRADMA.keys() | SWITCHED.keys() == known_keys().keys()


@pytest.mark.parametrize("key", PLACEMENT)
def test_where_and_how_a_run_is_carried_out_does_not_change_its_id(key):
    for algorithm in ("fedavg", "gradma"):
        plain = resolved(f"algorithm.name={algorithm}")
        placed = resolved(f"algorithm.name={algorithm}", f"{key}={PLACEMENT[key]}")
        assert run_id(placed) == run_id(plain)
        assert group_id(placed) == group_id(plain)


@pytest.mark.parametrize("key", IDENTITY)
def test_what_the_experiment_is_changes_its_id(key):
    assert identifier(f"{key}={IDENTITY[key]}") != identifier()
    assert (group_id(resolved(f"{key}={IDENTITY[key]}")) == group_id(resolved())) == (key == "seed")


@pytest.mark.parametrize("key", OF_GRADMA)
def test_keys_of_the_projection_and_memory_count_only_where_they_are_used(key):
    word = f"{key}={OF_GRADMA[key]}"
    assert identifier(word) == identifier()
    assert identifier("algorithm.name=gradma", word) != identifier("algorithm.name=gradma")


@pytest.mark.parametrize("key", SWITCHED)
def test_a_key_counts_only_while_another_has_not_switched_it_off(key):
    value, on, off = SWITCHED[key]
    assert identifier(on, f"{key}={value}") != identifier(on)
    assert identifier(off, f"{key}={value}") == identifier(off)


def test_equal_experiments_given_in_different_ways_have_one_id(tmp_path):
    words = ["data.name=mnist", "algorithm.name=fedprox", "algorithm.mu=1", "local_lr=0.10", "num_rounds=500"]
    file = tmp_path / "config.yaml"
    file.write_text(
        yaml.safe_dump({"data": {"name": "mnist"}, "algorithm": {"name": "fedprox", "mu": 1.0}, "local_lr": "1e-1"})
    )
    ways = [
        resolved(*words),
        resolved(*reversed(words)),
        resolve(compose([], [file])),
        resolved("point=" + " ".join(words)),
        resolve(compose(["algorithm={name: fedprox, mu: 1e0}", "data.name=mnist", "aggregation=uniform"])),
    ]
    assert len({run_id(way) for way in ways}) == 1
    printed = tmp_path / "printed.yaml"
    printed.write_text(yaml.safe_dump(to_dict(ways[0])))
    assert run_id(resolve(compose([], [printed]))) == run_id(ways[0])


@pytest.mark.parametrize("name", base.names())
def test_a_default_said_aloud_does_not_change_the_id(name):
    fields = base.hyper_parameters(base.get(name))
    words = [f"algorithm.name={name}", *(f"algorithm.{field.name}={field.default}" for field in fields)]
    assert identifier(*words) == identifier(f"algorithm.name={name}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data.name=minst"], "data.name=minst is not known; allowed: .*; did you mean 'mnist'"),
        (["algorithm.name=fedporx"], "algorithm.name=fedporx is not known; allowed: .*; did you mean 'fedproxm?'"),
        (["model.name=lenet"], "model.name=lenet is not known; allowed: .*; did you mean 'lenet5'"),
        (["algorithm.mu=1"], "algorithm.mu=1: fedavg has no such field; it has none; fedprox, .* have it"),
        (
            ["algorithm.name=gradma", "algorithm.memory_sise=9"],
            "algorithm.memory_sise=9: gradma has no such field; it has .*; did you mean 'memory_size'",
        ),
        (["algorithm.name=fedprox", "algorithm.mu=x"], "algorithm.mu=x has the wrong type; expected float"),
        (["algorithm.name=fedprox", "algorithm.mu="], "algorithm.mu=null has the wrong type; expected float"),
        (["algorithm.name=fedprox", "algorithm.mu={a: 1}"], "algorithm.mu={'a': 1} has the wrong type; expected float"),
        (["algorithm.name=fedprox", "algorithm.mu=-1"], "algorithm.mu=-1.0 is not allowed; it must be >= 0"),
        (
            ["algorithm.name=fedprox", "algorithm.mu=nan"],
            "algorithm.mu=nan is not allowed; it must be a finite number >= 0",
        ),
        (
            ["algorithm.name=gradma", "algorithm.memory_size=5"],
            "algorithm.memory_size=5 is not allowed; .* cohort_size=10 and num_workers=100",
        ),
        (
            ["algorithm.name=gradma", "algorithm.memory_size=101"],
            "algorithm.memory_size=101 is not allowed; .* num_workers=100",
        ),
        (["plugins=[no_such_module]"], r"plugins=\[no_such_module\] cannot be imported"),
        (["plugins=['']"], r"plugins=\[\] cannot be imported"),
        (["plugins=[.x]"], r"plugins=\[.x\] cannot be imported"),
    ],
)
def test_names_and_hyper_parameters_are_checked_before_any_work(words, message):
    with pytest.raises(UserError, match=f"^{message}"):
        resolved(*words)


def test_a_sweep_may_drop_fields_that_other_algorithms_have():
    config = compose(["algorithm.name=fedavg", "algorithm.mu=0.5"])
    assert run_id(resolve(config, drop_unused=True)) == identifier()
    with pytest.raises(UserError, match="no such field"):
        resolve(compose(["algorithm.zeta=1"]), drop_unused=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["num_workers=5000"], "num_workers=5000 is not possible with 1437 training samples"),
        (
            ["data.name=mnist", "data.root=/nowhere"],
            "data.name=mnist is not there .*get it with `python -m fl_platform data get mnist`",
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
def test_what_the_data_or_the_model_forbid_is_refused_when_building(words, message, monkeypatch):
    monkeypatch.delenv("FL_DATA_ROOT", raising=False)
    with pytest.raises(UserError, match=message):
        experiment.build(resolved(*words))


def test_building_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    module = experiment.build(resolved(*SMALL))
    assert torch.equal(before, torch.get_rng_state())
    again = experiment.build(resolved(*SMALL))
    assert torch.equal(module.global_params, again.global_params)


def test_one_seed_fixes_partition_weights_cohorts_and_batches_for_every_algorithm():
    fedavg, gradma = (
        experiment.build(resolved(*SMALL, f"algorithm.name={name}", *extra))
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
from fl_platform.data.datasets import Dataset, register
from fl_platform.data.image_set import ImageSet
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


def load(folder):
    def images(count):
        labels = np.arange(count) % 2
        return ImageSet.from_arrays((labels[:, None, None, None] * np.full((1, 2, 2), 255)).astype(np.uint8), labels)

    return images(40), images(20)


register(
    Dataset(
        "blinking", "on or off", 2, shape=(1, 2, 2), mean=(0.5,), std=(0.5,), load=load, default_model="perceptron"
    )
)
'''


def test_a_plugin_adds_an_algorithm_a_model_and_a_data_set(tmp_path, monkeypatch):
    (tmp_path / "outside_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = (*SMALL, "data.name=blinking", "data.partition=iid", "tracking.mode=disabled")
    with pytest.raises(UserError, match=r"data\.name=blinking is not known"):
        resolved(*words)
    try:
        halved = resolved(*words, "plugins=[outside_plugin]", "algorithm.name=halved")
        assert halved.algorithm == {"name": "halved", "factor": 0.5}
        assert halved.model.name == "perceptron"
        done = train(halved, experiment.build(halved))
        plain = resolved(*words, "server_lr=0.5")
        reference = train(plain, experiment.build(plain))
        assert torch.equal(done.params, reference.params)
        assert done.module.history[-1]["test/accuracy"] == 1.0
        assert resolved(*words, "plugins=[outside_plugin]").model.name == "perceptron"  # imported a second time
    finally:  # what is registered outlives the test otherwise
        base._registry.pop("halved", None)
        datasets._DATASETS.pop("blinking", None)
        models.registry._architectures.pop("perceptron", None)
        sys.modules.pop("outside_plugin", None)


def test_an_algorithm_name_is_registered_once():
    with pytest.raises(ValueError, match="an algorithm named 'fedavg' is registered already"):

        class Another(base.Algorithm, name="fedavg"):
            pass


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
