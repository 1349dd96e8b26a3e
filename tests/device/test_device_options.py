"""Options of rounds, uploads and evaluations on a device: the same numbers as on the CPU, nothing left on the host."""

import numpy as np
import pytest

from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset
from tests.device.runs import CPU, DEVICE, distance, run_on
from tests.device.test_runs import ROUND_OFF, both
from tests.federations import described, make_config, make_module

OPTIONS = [
    ("evaluation.workers=true", "data.worker_test_fraction=0.3", "evaluation.finetune_steps=2"),
    ("evaluation.workers=true", "data.worker_test_fraction=0.3", "algorithm.name=fedper"),
    ("evaluation.workers=true", "data.worker_test_fraction=0.3", "algorithm.name=ditto", "engine=loop"),
    ("evaluation.metrics=[macro_f1,balanced_accuracy,perplexity,calibration_error]",),
    ("compression.name=topk", "compression.fraction=0.1", "algorithm.name=scaffold"),
    ("compression.name=quantise", "compression.bits=4"),
    ("faults.kind=gaussian", "faults.probability=0.5"),
    ("faults.kind=alie", "faults.probability=0.5", "cohort_size=5"),
    ("faults.kind=label_flip", "faults.probability=0.5", "faults.workers=fixed"),
    ("work.name=uniform", "work.straggler_share=0.7", "algorithm.name=fednova", "local_momentum=0.9"),
    ("work.name=uniform", "work.straggler_share=0.7", "algorithm.name=gradma_w"),
    ("work.name=by_speed", "algorithm.name=mime", "local_clip=1", "local_weight_decay=0.01"),
    ("local_epochs=1", "algorithm.name=mimelite", "local_lr_schedule=cosine"),
    ("cohort_sampling=poisson", "algorithm.name=dp_fedavg", "algorithm.clipping=adaptive", "num_rounds=4"),
    ("algorithm.name=gradma", "algorithm.qp.solver=clarabel"),
    ("algorithm.name=gradma", "algorithm.memory_policy=most_redundant", "algorithm.memory_size=3", "num_rounds=4"),
    ("availability.name=markov", "algorithm.name=mifa", "num_rounds=4"),
]


@pytest.mark.parametrize("args", OPTIONS, ids=" ".join)
def test_an_option_gives_what_it_gives_on_the_cpu(args):
    here, there = both("engine=stacked", *args)
    assert distance(here, there) < 1e5 * ROUND_OFF
    for expected, found in zip(here.figures(), there.figures(), strict=True):
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-6, abs=1e-9), name


class Tokens(Dataset):
    """Random tokens."""

    num_classes, shape, features, num_tokens, default_model = 5, (6,), "tokens", 9, "char_gru"

    @staticmethod
    def samples(count: int) -> Samples:
        rng = np.random.default_rng(count)
        return Samples.from_arrays(rng.integers(0, 9, (count, 6)), rng.integers(0, 5, count))


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_networks_of_tokens(engine, monkeypatch):
    monkeypatch.setattr("tests.federations.images", lambda count, *args: Tokens.samples(count))
    config = make_config("model.name=char_gru", "model.width=8", f"engine={engine}", "num_rounds=2", "local_lr=0.5")
    dataset = described(Tokens, name="tokens")
    here, there = (run_on(device, config, module=make_module(config, dataset=dataset)) for device in (CPU, DEVICE))
    assert distance(here, there) < 1000 * ROUND_OFF
