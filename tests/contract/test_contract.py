"""What every registered algorithm must satisfy; a new one is tested by existing."""

import dataclasses
import functools
import json
import operator

import numpy as np
import pytest
import torch

from fl_platform.algorithms import base
from fl_platform.config.options import default_of, walk
from fl_platform.config.schema import Config
from fl_platform.federation.build import make_algorithm
from fl_platform.models import vgg11
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from tests.federations import SIZES, Finished, make_config, make_module, synthetic_dataset, train

ALGORITHMS = base.names()
ENGINES = ("loop", "stacked")


def config_of(name: str, engine: str) -> Config:
    """Four rounds with workers that come and go, of unequal weight."""
    args = (f"engine={engine}", "num_rounds=4", "availability.name=markov", "aggregation=samples")
    return make_config(f"algorithm.name={name}", *args)


@functools.cache
def whole(name: str, engine: str) -> Finished:
    """The run that several tests compare with."""
    return train(config_of(name, engine))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_rounds_and_their_resumption_are_the_bits_of_four(name, engine, tmp_path):
    """One seed gives equal bits, whether or not a run is interrupted."""
    config, straight = config_of(name, engine), whole(name, engine)
    half = train(dataclasses.replace(config, num_rounds=2), checkpoints=tmp_path, every=2)
    assert half.figures() == straight.figures()[:2]
    [(round, newest)] = sorted_checkpoints(tmp_path)
    assert round == 2
    resumed = train(config, resume=newest)
    assert torch.equal(straight.params, resumed.params)
    assert torch.equal(straight.module.global_buffers, resumed.module.global_buffers)
    assert straight.figures() == resumed.figures()


@pytest.mark.parametrize("name", ["fedavg", "gradma"])
def test_another_seed_gives_other_bits(name):
    assert not torch.equal(
        whole(name, "loop").params, train(dataclasses.replace(config_of(name, "loop"), seed=1)).params
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_loop_engine_equals_stacked_engine(name):
    loop, stacked = (whole(name, engine) for engine in ENGINES)
    assert torch.allclose(loop.params, stacked.params, rtol=0, atol=1e-10)
    assert torch.allclose(loop.module.global_buffers, stacked.module.global_buffers, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_workers_with_different_numbers_of_steps(name, tmp_path):
    """Stragglers of epochs with momentum: both engines agree, and a resumed run equals an uninterrupted one."""
    args = (f"algorithm.name={name}", "local_epochs=1", "work.name=uniform", "local_momentum=0.5", "num_rounds=2")
    loop = train(make_config(*args, "engine=loop"))
    stacked = train(make_config(*args, "engine=stacked"), checkpoints=tmp_path)
    assert torch.allclose(loop.params, stacked.params, rtol=0, atol=1e-10)
    assert torch.allclose(loop.module.global_buffers, stacked.module.global_buffers, rtol=0, atol=1e-10)
    [first] = [path for round, path in sorted_checkpoints(tmp_path) if round == 1]
    resumed = train(make_config(*args, "engine=stacked"), checkpoints=tmp_path / "again", resume=first)
    assert torch.equal(stacked.params, resumed.params)
    assert stacked.figures() == resumed.figures()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_relabelled_workers_leave_the_model_unchanged(name, monkeypatch):
    """R19: sampling permuted ids of a permuted partition is the same federation, also in the other engine."""
    args = ("cohort_size=6", "batch_size=64", "num_rounds=2", "aggregation=uniform")  # whole local sets: no streams
    loop, stacked = (make_config(f"algorithm.name={name}", *args, f"engine={engine}") for engine in ENGINES)
    for config in (loop, stacked):
        if "memory_size" in config.algorithm:
            config.algorithm["memory_size"] = len(SIZES)
    order = np.array([3, 0, 5, 1, 4, 2])
    permuted = make_module(stacked, order=order)
    sample = permuted.pool.sample
    position = np.argsort(order)

    def relabelled(round):
        cohort = sample(round)
        return dataclasses.replace(cohort, sampled=position[cohort.sampled], reporting=position[cohort.reporting])

    monkeypatch.setattr(permuted.pool, "sample", relabelled)
    a, b = train(loop), train(stacked, permuted)
    assert torch.allclose(a.params, b.params, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_hyper_parameters_survive_words_config_and_checkpoint(name, tmp_path):
    kind = base.get(name)
    args = [f"algorithm.name={name}"]
    for field_name, field in walk(kind):
        changed = field.metadata["choices"][-1] if field.metadata.get("choices") else default_of(field)
        if field.metadata.get("is_device"):
            changed = "cpu"
        elif isinstance(changed, float):
            changed = changed / 2
        elif changed is None:
            changed = 5 if field_name == "memory_size" else field.metadata["at_least"] or 0.5
        args.append(f"algorithm.{field_name}={changed}")
    config = make_config(*args, "num_rounds=1")
    algorithm = make_algorithm(config)
    for word in args[1:]:
        key, value = word.split("=")
        assert str(operator.attrgetter(key.removeprefix("algorithm."))(algorithm)) == value
    done = train(config, algorithm=algorithm, checkpoints=tmp_path)
    [(_, newest), *_] = sorted_checkpoints(tmp_path)
    saved = torch.load(newest, weights_only=True)
    assert json.loads(saved["federated"]["config"])["algorithm"] == config.algorithm
    states = {f.name for f in dataclasses.fields(kind) if not f.init}
    assert set(saved["callbacks"].get(algorithm.state_key, {})) == states
    assert done.module.history[-1]["round"] == 1


@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_rounds_on_other_models(name, monkeypatch):
    """A method runs on other architectures in both engines with equal results (VGG-11 with narrow layers).

    Those that train a network as FedAvg does, on vectors, meet LeNet-5, which has convolutions and dropout.
    """
    monkeypatch.setattr(vgg11, "GROUPS", tuple(tuple(4 for _ in group) for group in vgg11.GROUPS))
    models = {"lenet5": (3, 16, 16), "vgg11": (3, 32, 32), "resnet20": (1, 8, 8)}
    if base.has_default(make_algorithm(make_config(f"algorithm.name={name}")), "local_loss"):
        del models["vgg11"], models["resnet20"]
    for model, shape in models.items():
        args = (
            f"algorithm.name={name}",
            f"model.name={model}",
            "num_rounds=2",
            "local_steps=2",
            "cohort_size=2",
            "batch_size=4",
        )
        width = ("model.width=4",) if model == "resnet20" else ()
        results = [
            train(
                make_config(*args, *width, f"engine={engine}", workers=3),
                sizes=(3, 5, 9),
                dataset=synthetic_dataset(shape),
            )
            for engine in ("loop", "stacked")
        ]
        assert torch.allclose(results[0].params, results[1].params, rtol=0, atol=1e-8)  # BatchNorm of two samples
