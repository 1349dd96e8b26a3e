"""The round as a function: a model in, a new model and its metrics out."""

import numpy as np
import pytest
import torch

from fl_platform.federation.pool import Cohort
from fl_platform.federation.round import Model, federated_round
from fl_platform.runs import metrics
from tests.federations import make_config, train


@pytest.fixture
def module():
    return train(make_config("num_rounds=1")).module


def test_a_round_makes_a_new_model_and_leaves_the_old_one(module):
    before = Model(module.global_params, module.global_buffers)
    copies = [tensor.clone() for tensor in before]
    done = federated_round(module.server, before, 2)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(before, copies, strict=True))
    assert not torch.equal(done.model.params, before.params)
    assert not torch.equal(done.model.buffers, before.buffers)
    assert done.logged[metrics.ROUND] == 2
    assert not done.is_diverged


def test_rounds_called_one_by_one_are_those_of_the_trainer(module):
    model = Model(module.global_params, module.global_buffers)
    for round in (2, 3):
        model = federated_round(module.server, model, round).model
    assert torch.equal(model.params, train(make_config("num_rounds=3")).params)


def test_a_round_without_reports_changes_nothing(module, monkeypatch):
    nobody = np.array([], dtype=np.int64)
    monkeypatch.setattr(module.pool, "sample", lambda round: Cohort(np.array([1, 2]), nobody))
    before = Model(module.global_params, module.global_buffers)
    done = federated_round(module.server, before, 2)
    assert done.model is before
    assert done.logged == {metrics.ROUND: 2, metrics.COHORT_SIZE: 0, metrics.COHORT: []}
    assert done.num_bytes == 2 * 8 * (len(before.params) + len(before.buffers))  # models down, nothing up


def test_an_update_that_is_not_finite_is_not_applied(module):
    params = module.global_params.clone()
    params[0] = float("nan")
    before = Model(params, module.global_buffers)
    done = federated_round(module.server, before, 2)
    assert done.is_diverged
    assert done.model is before
