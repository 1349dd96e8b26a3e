"""A kernel stands in for a hook only where calling the hook would run FedAvg's own code."""

import functools
from typing import Any

import pytest
import torch

from fl_platform.algorithms.base import Algorithm, has_default
from fl_platform.algorithms.fedavg import FedAvg
from fl_platform.algorithms.fedavgm import FedAvgM
from fl_platform.algorithms.fedprox import FedProx
from tests.federations import make_config, train


def doubled(step: Any) -> torch.Tensor:
    return 2 * step.gradient


def in_subclass(monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    class Subclass(FedAvg):
        def local_direction(self, step: Any) -> torch.Tensor:
            return doubled(step)

    return Subclass()


def in_mixin(monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    class Mixin:
        def local_direction(self, step: Any) -> torch.Tensor:
            return doubled(step)

    class Mixed(Mixin, FedAvg):
        pass

    return Mixed()


def on_instance(monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    algorithm = FedAvg()
    algorithm.local_direction = doubled  # type: ignore[method-assign]
    return algorithm


def as_attribute(monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    class Attribute(FedAvg):
        local_direction = staticmethod(doubled)

    return Attribute()


def as_property(monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    class Property(FedAvg):
        @property
        def local_direction(self) -> Any:
            return doubled

    return Property()


def by_patching_the_class(monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    monkeypatch.setattr(Algorithm, "local_direction", lambda self, step: doubled(step))
    return FedAvg()


def by_a_wrapper(monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    class Wrapped(FedAvg):
        @functools.wraps(Algorithm.local_direction)
        def local_direction(self, step: Any) -> torch.Tensor:
            return doubled(step)

    return Wrapped()


def by_getattribute(monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    class Intercepts(FedAvg):
        def __getattribute__(self, name: str) -> Any:
            return doubled if name == "local_direction" else super().__getattribute__(name)

    return Intercepts()


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize(
    "replaced",
    [
        in_subclass,
        in_mixin,
        on_instance,
        as_attribute,
        as_property,
        by_patching_the_class,
        by_a_wrapper,
        by_getattribute,
    ],
)
def test_a_direction_replaced_in_any_way_is_followed(replaced, engine, monkeypatch):
    """Twice the gradient at half the rate is FedAvg's own step."""
    plain = train(make_config(f"engine={engine}", "local_lr=0.2"), algorithm=FedAvg())
    algorithm = replaced(monkeypatch)
    assert not has_default(algorithm, "local_direction")
    assert has_default(algorithm, "local_loss")
    done = train(make_config(f"engine={engine}", "local_lr=0.1"), algorithm=algorithm)
    assert torch.allclose(done.params, plain.params, rtol=0, atol=1e-12)


def test_a_direction_replaced_during_the_run_is_followed():
    class Late(FedAvg):
        def begin_round(self, workers: Any, round: int) -> None:
            self.local_direction = lambda step: torch.zeros_like(step.gradient)  # type: ignore[method-assign]

    done = train(make_config("engine=loop"), algorithm=Late())
    assert torch.equal(done.params, done.module.network.initial_params.double())


def test_a_loss_replaced_on_the_instance_is_minimised():
    algorithm = FedAvg()
    algorithm.local_loss = lambda batch: 0 * batch.cross_entropy(batch.logits)  # type: ignore[method-assign]
    done = train(make_config("engine=loop"), algorithm=algorithm)
    assert torch.equal(done.params, done.module.network.initial_params.double())


def test_methods_that_change_only_the_server_have_the_default_hooks():
    assert has_default(FedAvgM(), "local_loss", "local_direction")
    assert has_default(FedProx(), "local_loss")
    assert not has_default(FedProx(), "local_loss", "local_direction")
