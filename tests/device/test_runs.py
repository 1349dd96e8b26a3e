"""Whole federations on a device that is not the CPU: engines, options and models agree with the CPU."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fl_platform.algorithms.base import Algorithm, LocalStep
from fl_platform.kernels.perceptron import Perceptron
from fl_platform.models import vgg11
from fl_platform.runs.checkpoint_files import newest_valid
from tests.device.runs import CPU, DEVICE, Phases, counted, distance, run_on
from tests.federations import Finished, make_config, make_module

ROUND_OFF = 2.0**-52


def both(*args: str) -> tuple[Finished, Finished]:
    """On the CPU and on the device."""
    config = make_config("num_rounds=2", *args)
    return run_on(CPU, config), run_on(DEVICE, config)


@pytest.mark.parametrize("name", ["fedavg", "fedlc", "fedmlb", "fedsam", "mime", "moon"])
def test_the_same_kernels_give_the_same_bits_in_the_loop_engine(name, monkeypatch):
    """Workers one by one: methods that ask an engine for different things. Compiled perceptrons are for CPUs only."""
    monkeypatch.setattr(Perceptron, "of", lambda *_: None)
    here, there = both(f"algorithm.name={name}", "precision=float32", "engine=loop")
    assert there.module.fingerprint() == here.module.fingerprint()


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("scope", ["global", "tensor"])
def test_projections_agree(scope, engine):
    """Compiled on the CPU and written in tensors for devices; in float64, where anchors that cancel cost no digits."""
    config = make_config(
        "algorithm.name=gradma", f"algorithm.qp.scope={scope}", f"engine={engine}", "local_lr=0.5", "num_rounds=2"
    )
    here, (there, phases) = run_on(CPU, config), counted(config)
    assert distance(here, there) < 1000 * ROUND_OFF
    assert not phases.workers.reads


@pytest.mark.parametrize(
    "args",
    [
        ("algorithm.name=gradma", "algorithm.memory_device=cpu"),
        ("algorithm.name=gradma", "state.device=cpu"),
        ("algorithm.name=scaffold", "state.device=cpu"),
        ("algorithm.name=moon", "buffers=local"),
        ("algorithm.name=fedavg", "buffers=server", "aggregation=uniform", "cohort_chunk=2"),
        (
            "algorithm.name=gradma",
            "availability.name=bernoulli",
            "availability.failure_probability=0.4",
            "num_rounds=4",
        ),
        ("algorithm.name=scaffold", "faults.kind=nan", "faults.probability=0.3", "faults.reject_nonfinite=true"),
    ],
    ids=" ".join,
)
def test_options_that_move_or_lose_state(args):
    here, there = both("engine=stacked", *args)
    assert distance(here, there) < 1000 * ROUND_OFF


def test_the_device_goes_on_where_the_cpu_stopped(tmp_path):
    args = ("algorithm.name=gradma", "engine=loop")
    straight = run_on(CPU, make_config(*args, "num_rounds=3"))
    run_on(CPU, make_config(*args, "num_rounds=2"), checkpoints=tmp_path)
    resumed = run_on(DEVICE, make_config(*args, "num_rounds=3"), resume=newest_valid(tmp_path))
    assert distance(straight, resumed) < 1000 * ROUND_OFF


@pytest.mark.parametrize("model", ["mlp", "lenet5", "vgg11", "resnet20"])
def test_workers_of_every_network_read_nothing(model, monkeypatch):
    """With GroupNorm; the table of counts has BatchNorm."""
    monkeypatch.setattr(vgg11, "GROUPS", tuple(tuple(4 for _ in group) for group in vgg11.GROUPS))
    width = ["model.width=4"] if model == "resnet20" else []
    args = (f"model.name={model}", "model.norm=group", "engine=stacked", "num_rounds=2", "local_steps=1", *width)
    _, phases = counted(make_config(*args, "precision=float32"))
    assert phases.workers.kernels.total() > 50
    assert not phases.workers.reads


class WithCounters(nn.Module):
    """A network with an index and a mask among its buffers, as a user may write it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.arange(15, -1, -1))
        self.register_buffer("is_used", torch.arange(16) % 2 == 0)
        self.output = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.where(self.is_used, x.flatten(1)[:, self.order], 0.0))


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_model_with_integer_and_boolean_buffers(engine):
    path = f"{__name__}.{WithCounters.__name__}"
    config = make_config(f"model.name={path}", f"engine={engine}", "num_rounds=2", "precision=float32")
    here, there = (run_on(device, config, module=make_module(config)) for device in (CPU, DEVICE))
    assert there.module.fingerprint() == here.module.fingerprint()


def test_a_tensor_left_on_the_host_would_be_seen():
    class Stray(Algorithm):
        name = "stray"

        def local_direction(self, step: LocalStep) -> Tensor:
            return step.gradient + torch.ones(step.gradient.shape[1])

    with pytest.raises(RuntimeError, match="same device"):
        run_on(DEVICE, make_config("engine=stacked", "precision=float32"), algorithm=Stray())


def test_a_read_in_a_local_step_would_be_counted():
    class Curious(Algorithm):
        name = "curious"

        def local_direction(self, step: LocalStep) -> Any:
            return step.gradient * float(step.gradient.sum() > -1e9)

    phases = Phases()
    config = make_config("engine=stacked", "num_rounds=2", "local_steps=7")
    run_on(DEVICE, config, algorithm=phases.watch(Curious()), callbacks=(phases,))
    assert phases.workers.reads.total() == 7
