"""Tensors that an algorithm is given stay as they are: keeping them needs no copy."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from fl_platform.algorithms import base
from fl_platform.algorithms.base import Start
from fl_platform.algorithms.fedavg import FedAvg
from fl_platform.kernels import recycled
from fl_platform.models.flat import Stack, Vector
from tests.federations import make_config, synthetic_dataset, train


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    """The memory of small tensors is recycled too."""
    monkeypatch.setattr(recycled, "LARGE", 1)


IMAGES = synthetic_dataset((3, 16, 16))


class Hoarder(FedAvg):
    """FedAvg that asks for everything and keeps all tensors it is handed, with copies to compare them with."""

    sends = ("sent_params",)

    def __init__(self) -> None:
        self.kept: deque[tuple[str, torch.Tensor, torch.Tensor]] = (
            deque()
        )  # a list that grows in a worker hook is refused

    @property
    def keeps(self) -> dict[str, Start]:
        return {"last": Start.GLOBAL_PARAMS, "zeros": Start.ZEROS, "statistics": Start.GLOBAL_BUFFERS}

    def keep(self, handed: Any, where: str) -> None:
        """Tensors, also inside mappings, sequences and the objects of the contract."""
        if isinstance(handed, torch.Tensor):
            self.kept.append((where, handed, handed.detach().clone()))
        elif isinstance(handed, np.ndarray):
            self.kept.append((where, torch.from_numpy(handed), torch.from_numpy(handed.copy())))
        elif isinstance(handed, Mapping):
            for name, value in handed.items():
                self.keep(value, f"{where}.{name}")
        elif isinstance(handed, Sequence):
            for value in handed:
                self.keep(value, where)

    def keep_fields(self, handed: Any, where: str) -> None:
        for field in fields(handed):
            self.keep(getattr(handed, field.name), f"{where}.{field.name}")

    def begin_round(self, workers: np.ndarray, round: int) -> None:
        self.keep(workers, "begin_round.workers")

    def finish_local(self, run: base.LocalRun) -> dict[str, Stack]:
        self.keep_fields(run, "LocalRun")
        self.keep(run.full_gradient(run.global_params), "full_gradient")
        self.keep(run.round_gradient(run.global_params), "round_gradient")
        return {"last": run.params, "zeros": run.delta, "statistics": run.buffers, "sent_params": run.params}

    def server_direction(self, updates: base.Updates) -> Vector:
        self.keep_fields(updates, "Updates")
        self.keep(updates.mean_delta, "mean_delta")
        return super().server_direction(updates)

    def evaluated_params(self, global_params: Vector) -> Vector:
        self.keep(global_params, "evaluated_params")
        return global_params


class StepHoarder(Hoarder):
    """The same, one step at a time."""

    def local_direction(self, step: base.LocalStep) -> Stack:
        self.keep_fields(step, "LocalStep")
        for place in (step.global_params, step.previous_params, step.state["last"]):
            self.keep(step.gradient_at(place), "gradient_at")
        return step.gradient


class LossHoarder(StepHoarder):
    """The same, with a loss that looks at the batch."""

    def local_loss(self, batch: base.LocalBatch) -> torch.Tensor:
        self.keep_fields(batch, "LocalBatch")
        self.keep(batch.frozen_features(batch.global_params, batch.global_buffers), "frozen_features")
        return super().local_loss(batch)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize(
    ("model", "kind"), [("mlp", Hoarder), ("mlp", StepHoarder), ("mlp", LossHoarder), ("lenet5", LossHoarder)]
)
@pytest.mark.parametrize("args", [(), ("buffers=local", "faults.kind=sign_flip", "faults.probability=0.5")])
def test_nothing_an_algorithm_was_given_is_written_over(engine, model, kind, args):
    config = make_config(f"engine={engine}", f"model.name={model}", "precision=float32", *args)
    done = train(config, algorithm=kind(), dataset=IMAGES if model == "lenet5" else None)
    names = {where for where, _, _ in done.algorithm.kept}
    assert {
        "LocalRun.params",
        "LocalRun.delta",
        "Updates.delta",
        "Updates.sent.sent_params",
        "begin_round.workers",
    } <= (names)
    assert ("LocalStep.gradient" in names) == (kind is not Hoarder)
    changed = {where for where, handed, copy in done.algorithm.kept if not torch.equal(handed.detach(), copy)}
    assert changed == set()


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_what_a_step_hands_out_works_with_autograd(engine):
    class Differentiates(FedAvg):
        def local_direction(self, step: base.LocalStep) -> Stack:
            scale = torch.ones((), dtype=step.gradient.dtype, requires_grad=True)
            (scale * step.gradient).square().sum().backward()
            assert scale.grad is not None
            step.gradient.mul_(1.0)
            return step.gradient

    train(make_config(f"engine={engine}", "num_rounds=1"), algorithm=Differentiates())
