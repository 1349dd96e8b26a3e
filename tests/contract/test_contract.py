"""What every registered algorithm must satisfy; a new one is tested by existing."""

import dataclasses
import functools
import json
import operator

import numpy as np
import pytest
import torch

from fl_platform.algorithms import base
from fl_platform.algorithms.fedopt import AdaptiveServer
from fl_platform.config.options import default_of, walk
from fl_platform.config.schema import Config
from fl_platform.federation.build import make_algorithm
from fl_platform.models import vgg11
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from tests.federations import SIZES, Finished, make_config, make_module, synthetic_dataset, train

ALGORITHMS = base.names()
ENGINES = ("loop", "stacked")
EACH_KIND_OF_STATE = ("fedavg", "scaffold", "gradma", "moon", "mifa", "apfl")


def config_of(name: str, engine: str) -> Config:
    """Three rounds with workers that come and go, of unequal weight."""
    args = (f"engine={engine}", "num_rounds=3", "availability.name=markov", "aggregation=samples")
    return make_config(f"algorithm.name={name}", *args)


@functools.cache
def whole(name: str, engine: str) -> Finished:
    """The run that several tests compare with."""
    return train(config_of(name, engine))


def assert_close(one: Finished, other: Finished) -> None:
    assert torch.allclose(one.params, other.params, rtol=0, atol=1e-10)
    assert torch.allclose(one.module.global_buffers, other.module.global_buffers, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_both_engines_agree_and_a_resumed_run_has_the_bits_of_a_whole_one(name, tmp_path):
    """One seed gives equal bits, whether or not a run is interrupted; checkpoints hold nothing of an engine."""
    assert_close(whole(name, "loop"), whole(name, "stacked"))
    for engine in ENGINES if name in EACH_KIND_OF_STATE else ENGINES[1:]:
        config, straight, place = config_of(name, engine), whole(name, engine), tmp_path / engine
        begun = train(dataclasses.replace(config, num_rounds=2), checkpoints=place, every=2)
        assert begun.figures() == straight.figures()[:2]
        [(round, newest)] = sorted_checkpoints(place)
        assert round == 2
        resumed = train(config, resume=newest)
        assert torch.equal(straight.params, resumed.params)
        assert torch.equal(straight.module.global_buffers, resumed.module.global_buffers)
        assert straight.figures() == resumed.figures()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_in_float32_too_a_resumed_run_has_the_bits_of_a_whole_one_on_any_number_of_threads(name, tmp_path):
    """Most methods train perceptrons in compiled code then, which is not for float64."""
    config = dataclasses.replace(config_of(name, "loop"), precision="float32")
    straight = train(config)
    assert straight.params.dtype == torch.float32
    train(dataclasses.replace(config, num_rounds=2), checkpoints=tmp_path, every=2)
    [(_, newest)] = sorted_checkpoints(tmp_path)
    for again in (train(config, resume=newest), train(dataclasses.replace(config, threads=2))):
        assert torch.equal(straight.params, again.params)
        assert torch.equal(straight.module.global_buffers, again.module.global_buffers)
        assert straight.figures() == again.figures()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_another_seed_gives_other_bits(name):
    assert not torch.equal(
        whole(name, "loop").params, train(dataclasses.replace(config_of(name, "loop"), seed=1)).params
    )


STRAGGLERS = ("local_epochs=1", "work.name=uniform", "local_momentum=0.5", "num_rounds=2")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_workers_with_different_numbers_of_steps(name):
    """Stragglers of epochs with momentum: both engines agree."""
    assert_close(*(train(make_config(f"algorithm.name={name}", *STRAGGLERS, f"engine={e}")) for e in ENGINES))


@pytest.mark.parametrize("name", EACH_KIND_OF_STATE)
def test_resumed_with_different_numbers_of_steps(name, tmp_path):
    args = (f"algorithm.name={name}", *STRAGGLERS)
    stacked = train(make_config(*args, "engine=stacked"), checkpoints=tmp_path)
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
            least = field.metadata["at_least"]
            changed = 5 if field_name == "memory_size" else 0.5 if least is None else least
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
def test_rounds_on_other_models(name, monkeypatch):
    """A method runs on other architectures in both engines with equal results (VGG-11 with narrow layers).

    Those that train a network as FedAvg does, on vectors, meet LeNet-5, which has convolutions and dropout, once. There
    engines differ by some 1e-12 (BatchNorm of two or three samples). Adaptive servers divide that by tau = 1e-3; a
    first step of twice the length, FedSpeed's, leads where the next round amplifies it as much, also with FedAvg.
    """
    monkeypatch.setattr(vgg11, "GROUPS", tuple(tuple(4 for _ in group) for group in vgg11.GROUPS))
    models, rounds = {"lenet5": (3, 16, 16), "vgg11": (3, 32, 32), "resnet20": (1, 8, 8)}, 2
    if base.has_default(make_algorithm(make_config(f"algorithm.name={name}")), "local_loss"):
        models, rounds = {"lenet5": models["lenet5"]}, 1
    for model, shape in models.items():
        args = (
            f"algorithm.name={name}",
            f"model.name={model}",
            f"num_rounds={rounds}",
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
        is_close_to_exact = model == "lenet5" and not (issubclass(base.get(name), AdaptiveServer) or name == "fedspeed")
        tolerance = 1e-10 if is_close_to_exact else 1e-8
        assert torch.allclose(results[0].params, results[1].params, rtol=0, atol=tolerance)
