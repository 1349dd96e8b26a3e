"""Rates that change from round to round, and how many steps workers take."""

import dataclasses

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from fl_platform.errors import UserError
from fl_platform.federation.resume import resumed
from fl_platform.federation.schedules import local_rate, server_rate
from fl_platform.federation.work import local_steps
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from tests.federations import SIZES, make_config, make_module, train

WORKERS = np.arange(len(SIZES))


def rates(*args):
    config = make_config("num_rounds=8", "local_lr=0.4", *args)
    return [local_rate(config, round) for round in range(1, 9)]


def test_schedules_are_torchs_own():
    """The rates of a round are those of an optimiser whose scheduler steps once per round."""
    schedulers = {
        "exponential": lambda sgd: torch.optim.lr_scheduler.ExponentialLR(sgd, 0.7),
        "step": lambda sgd: torch.optim.lr_scheduler.StepLR(sgd, 3, 0.7),
        "cosine": lambda sgd: torch.optim.lr_scheduler.CosineAnnealingLR(sgd, 8, eta_min=0.4 * 0.1),
    }
    for name, make in schedulers.items():
        sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
        scheduler, expected = make(sgd), []
        for _ in range(8):
            expected.append(sgd.param_groups[0]["lr"])
            sgd.step()
            scheduler.step()
        found = rates(f"local_lr_schedule={name}", "local_lr_decay=0.7", "local_lr_every=3", "local_lr_floor=0.1")
        assert np.allclose(found, expected, rtol=1e-12)
    assert rates() == [0.4] * 8


def test_the_server_has_a_schedule_of_its_own():
    config = make_config("server_lr=2", "server_lr_schedule=exponential", "server_lr_decay=0.5")
    assert [server_rate(config, round) for round in (1, 2, 3)] == [2, 1, 0.5]
    plain = train(make_config("num_rounds=1")).params
    start = make_module(config).global_params
    moved = train(make_config("num_rounds=1", "server_lr=0.5")).params - start
    assert torch.allclose(moved, 0.5 * (plain - start), rtol=0, atol=1e-15)


def test_a_scheduled_run_resumes_with_the_same_bits(tmp_path):
    config = make_config(
        *("num_rounds=4", "local_lr_schedule=cosine", "server_lr_schedule=step", "server_lr_every=2"),
        *("local_momentum=0.9", "work.name=uniform"),
    )
    whole = train(config)
    train(config, checkpoints=tmp_path, every=2)
    [checkpoint] = [path for round, path in sorted_checkpoints(tmp_path) if round == 2]
    again = train(config, checkpoints=tmp_path / "again", resume=checkpoint)
    assert torch.equal(whole.params, again.params)
    assert whole.figures() == again.figures()


def test_a_cosine_run_cannot_be_made_longer(tmp_path):
    config = make_config("num_rounds=2", "local_lr_schedule=cosine", "local_steps=1")
    train(dataclasses.replace(config), checkpoints=tmp_path)
    [(_, newest), *_] = sorted_checkpoints(tmp_path)
    with pytest.raises(UserError, match="local_lr_schedule=cosine makes every round depend on the length"):
        resumed(str(newest), OmegaConf.create({"num_rounds": 4}))


def steps(**keys):
    config = make_config(*(f"{key.replace('__', '.')}={value}" for key, value in keys.items()))
    return local_steps(config, make_module(config).streams, WORKERS, 1)


def test_epochs_are_whole_passes_of_each_worker():
    """Workers of 5, 9, 20, 7, 12 and 30 samples in batches of 8; the last batch of 9 would be a single sample."""
    assert steps(local_epochs=1).tolist() == [1, 1, 3, 1, 2, 4]
    assert steps(local_epochs=3).tolist() == [3, 3, 9, 3, 6, 12]
    config = make_config("local_epochs=2")
    streams = make_module(config).streams
    plan = streams.draw(WORKERS, local_steps(config, streams, WORKERS, 1))
    for worker, size in enumerate(SIZES):
        seen = [plan.indices[step, worker, :count] for step, count in enumerate(plan.counts[:, worker])]
        times = np.unique(np.concatenate(seen), return_counts=True)[1]
        assert len(times) == size
        assert times.sum() == 2 * (size - (size == 9))


def test_stragglers_do_a_part_of_their_steps_the_same_for_every_method():
    assert steps(work__name="uniform", work__straggler_share=0).tolist() == [3] * 6
    config = make_config("work.name=uniform", "work.straggler_share=1", "local_steps=4")
    drawn = np.stack([local_steps(config, None, WORKERS, round) for round in range(50)])
    assert set(drawn.flatten()) == {1, 2, 3, 4}
    assert abs(drawn.mean() - 2.5) < 0.2
    assert local_steps(config, None, np.array([4, 1]), 7).tolist() == drawn[7][[4, 1]].tolist()


def test_speed_is_a_worker_s_own_and_half_of_them_do_everything():
    many = np.arange(400)
    config = make_config("work.name=by_speed", "local_steps=20", "work.speed_spread=1")
    first, later = (local_steps(config, None, many, round) for round in (1, 9))
    assert first.tolist() == later.tolist()
    assert abs((first == 20).mean() - 0.5) < 0.07
    assert first.min() >= 1
    assert abs((first < 10).mean() - 0.244) < 0.05  # P(exp(z) < 1/2) = Phi(-log 2)
