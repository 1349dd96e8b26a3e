"""Fields that choose another published reading of a method."""

import torch

from fl_platform.runs import metrics
from tests.federations import make_config, train


def run(name, *args):
    return train(make_config(f"algorithm.name={name}", "num_rounds=2", *args))


def test_moon_may_compare_a_new_worker_with_the_initial_model():
    """In round 1 x_t = x_0, so both readings agree; in round 2 workers seen for the first time differ."""
    first = [
        train(make_config("algorithm.name=moon", "num_rounds=1", f"algorithm.first_model={m}"))
        for m in ("global", "initial")
    ]
    assert torch.equal(first[0].params, first[1].params)
    assert not torch.equal(run("moon").params, run("moon", "algorithm.first_model=initial").params)


def test_fedmlb_frozen_blocks_may_use_running_statistics():
    both = [run("fedmlb", f"algorithm.frozen_blocks={mode}") for mode in ("train", "eval")]
    assert not torch.equal(both[0].params, both[1].params)
    plain = [run("fedmlb", "model.norm=none", f"algorithm.frozen_blocks={mode}") for mode in ("train", "eval")]
    assert torch.equal(plain[0].params, plain[1].params)  # without BatchNorm and dropout the modes are one


def test_feddyn_may_score_the_mean_of_the_active_workers():
    """The model is the same, the score is that of avg_S(x_I) = x_t - avg_S(d)."""
    server, active = run("feddyn"), run("feddyn", "algorithm.evaluated=active_mean")
    assert torch.equal(server.params, active.params)
    assert server.figures()[-1][metrics.TEST_LOSS] != active.figures()[-1][metrics.TEST_LOSS]
    fedavg = train(make_config("num_rounds=1"))  # u = 0 in round 1: FedDyn's workers only add the proximal term
    prox = train(make_config("algorithm.name=fedprox", "algorithm.mu=0.01", "num_rounds=1"))
    one = train(make_config("algorithm.name=feddyn", "algorithm.evaluated=active_mean", "num_rounds=1"))
    assert torch.allclose(one.algorithm.active_mean, prox.params, atol=1e-12)
    assert not torch.allclose(one.algorithm.active_mean, fedavg.params, atol=1e-12)
    assert abs(one.figures()[0][metrics.TEST_LOSS] - prox.figures()[0][metrics.TEST_LOSS]) < 1e-9
