"""What every registered algorithm must satisfy; a new one is tested by existing."""

import dataclasses
import json
import operator

import numpy as np
import pytest
import torch

from fl_platform.algorithms import base
from fl_platform.config.options import default_of, walk
from fl_platform.federation.build import make_algorithm
from fl_platform.models import vgg11
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from tests.federations import SIZES, make_config, make_module, synthetic_dataset, train

ALGORITHMS = base.names()


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_same_seed_gives_equal_bits_and_another_seed_does_not(name, engine):
    args = (f"algorithm.name={name}", f"engine={engine}")
    first, second = train(make_config(*args)), train(make_config(*args))
    other = train(make_config(*args, "seed=1"))
    assert torch.equal(first.params, second.params)
    assert first.figures() == second.figures()
    assert not torch.equal(first.params, other.params)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_rounds_resumed_for_two_more_equal_four(name, engine, tmp_path):
    config = make_config(f"algorithm.name={name}", f"engine={engine}", "num_rounds=4", "availability.name=markov")
    whole = train(config, checkpoints=tmp_path / "whole")
    half = dataclasses.replace(config, num_rounds=2)
    train(half, checkpoints=tmp_path / "half")
    [(round, newest), *_] = sorted_checkpoints(tmp_path / "half")
    assert round == 2
    resumed = train(config, checkpoints=tmp_path / "half", resume=newest)
    assert torch.equal(whole.params, resumed.params)
    assert torch.equal(whole.module.global_buffers, resumed.module.global_buffers)
    assert whole.figures() == resumed.figures()


@pytest.mark.parametrize("aggregation", ["uniform", "samples"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_loop_engine_equals_stacked_engine(name, aggregation):
    args = (f"algorithm.name={name}", f"aggregation={aggregation}")
    loop = train(make_config(*args, "engine=loop"))
    stacked = train(make_config(*args, "engine=stacked"))
    assert torch.allclose(loop.params, stacked.params, rtol=0, atol=1e-10)
    assert torch.allclose(loop.module.global_buffers, stacked.module.global_buffers, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_relabelled_workers_leave_the_model_unchanged(name, monkeypatch):
    """R19: sampling permuted ids of a permuted partition is the same federation."""
    config = make_config(f"algorithm.name={name}", "cohort_size=6", "batch_size=64")  # whole local sets: no streams
    if "memory_size" in config.algorithm:
        config.algorithm["memory_size"] = len(SIZES)
    order = np.array([3, 0, 5, 1, 4, 2])
    plain = make_module(config)
    permuted = make_module(config, order=order)
    sample = permuted.pool.sample
    position = np.argsort(order)

    def relabelled(round):
        cohort = sample(round)
        return dataclasses.replace(cohort, sampled=position[cohort.sampled], reporting=position[cohort.reporting])

    monkeypatch.setattr(permuted.pool, "sample", relabelled)
    a, b = train(config, plain), train(config, permuted)
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
        if field.metadata["is_device"]:
            changed = "cpu"
        args.append(f"algorithm.{field_name}={5 if field_name == 'memory_size' else changed}")
    config = make_config(*args)
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
    assert done.module.history[-1]["round"] == 3


@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_rounds_on_every_model(name, monkeypatch):
    """Every method runs on every architecture in both engines with equal results (VGG-11 with narrow layers)."""
    monkeypatch.setattr(vgg11, "GROUPS", tuple(tuple(4 for _ in group) for group in vgg11.GROUPS))
    for model, shape in (("lenet5", (3, 16, 16)), ("vgg11", (3, 32, 32)), ("resnet20", (1, 8, 8))):
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
        assert torch.allclose(results[0].params, results[1].params, rtol=0, atol=1e-9)
