"""Whole federations on a device that is not the CPU: every method agrees with the CPU, nothing is left on the host."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fl_platform.algorithms  # noqa: F401  registers them
from fl_platform.algorithms import base
from fl_platform.algorithms.base import Algorithm, LocalStep
from fl_platform.config.options import walk
from fl_platform.models import vgg11
from fl_platform.paper.methods import METHODS as PAPER
from fl_platform.runs.checkpoint_files import newest_valid, sorted_checkpoints
from tests.device.runs import CPU, DEVICE, counted, phases_of, run_on
from tests.federations import Finished, make_config, make_module

METHODS = base.names()
PROJECTING = [name for name in METHODS if "qp.scope" in dict(walk(base.get(name)))]
ROUND_OFF = 2.0**-52


def distance(one: Finished, other: Finished) -> float:
    pairs = ((one.params, other.params), (one.module.global_buffers, other.module.global_buffers))
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel())


def both(*args: str) -> tuple[Finished, Finished]:
    """On the CPU and on the device."""
    config = make_config("num_rounds=2", *args)
    return run_on(CPU, config), run_on(DEVICE, config)


@pytest.mark.parametrize("name", [name for name in METHODS if name in PAPER and name not in PROJECTING])
def test_the_same_kernels_give_the_same_bits_in_the_loop_engine(name):
    """Workers one by one, for the paper's methods; devices train them together unless told otherwise."""
    here, there = both(f"algorithm.name={name}", "precision=float32", "engine=loop")
    assert there.module.fingerprint() == here.module.fingerprint()


@pytest.mark.parametrize("name", METHODS)
def test_the_same_kernels_give_the_same_bits_and_workers_read_nothing(name):
    """Host reads and copies of the workers' part do not depend on the method (one more plan for a full pass)."""
    config = make_config(
        f"algorithm.name={name}", "precision=float32", "engine=stacked", "model.norm=none", "num_rounds=2"
    )
    there, phases = counted(config)
    assert not phases.workers.reads
    assert phases.workers.copies.total() <= 3
    if name not in PROJECTING:
        here = run_on(CPU, config)
        assert there.module.fingerprint() == here.module.fingerprint()
        assert there.figures() == here.figures()


@pytest.mark.parametrize("name", METHODS)
def test_batch_norm_of_a_stack_differs_by_round_off_and_a_resumed_run_by_nothing(name, tmp_path):
    """Its sums are added up in another order on a device: about as far from the CPU as float32 is from float64.

    Both distances are single draws of round-off, so they are compared by their order of magnitude.
    """
    args = (f"algorithm.name={name}", "engine=stacked", "num_rounds=3")
    exact = run_on(CPU, make_config(*args))
    config = make_config(*args, "precision=float32")
    here, there = run_on(CPU, config), run_on(DEVICE, config, checkpoints=tmp_path)
    has_batch_norm = config.model.norm == "batch"
    assert has_batch_norm == (distance(here, there) > 0)  # else the sums are the same
    assert distance(here, there) < 10 * distance(here, exact)
    [before_the_last] = [path for round, path in sorted_checkpoints(tmp_path) if round == 2]
    resumed = run_on(DEVICE, config, resume=before_the_last)
    assert resumed.module.fingerprint() == there.module.fingerprint()


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("scope", ["global", "tensor"])
@pytest.mark.parametrize("name", PROJECTING)
def test_projections_agree(name, scope, engine):
    """Compiled on the CPU and written in tensors for devices; in float64, where anchors that cancel cost no digits."""
    here, there = both(f"algorithm.name={name}", f"algorithm.qp.scope={scope}", f"engine={engine}", "local_lr=0.5")
    assert distance(here, there) < 1000 * ROUND_OFF


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
@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_workers_of_every_network_read_nothing(model, norm, monkeypatch):
    monkeypatch.setattr(vgg11, "GROUPS", tuple(tuple(4 for _ in group) for group in vgg11.GROUPS))
    width = ["model.width=4"] if model == "resnet20" else []
    args = (f"model.name={model}", f"model.norm={norm}", "engine=stacked", "num_rounds=2", "local_steps=2", *width)
    phases = phases_of(make_config(*args, "precision=float32"))
    assert phases.workers.kernels.total() > 50
    assert not phases.workers.reads


@pytest.mark.parametrize("name", PROJECTING)
def test_workers_that_project_per_tensor_read_nothing(name):
    config = make_config(f"algorithm.name={name}", "algorithm.qp.scope=tensor", "engine=stacked", "num_rounds=2")
    phases = phases_of(config)
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
    from tests.device.runs import Phases

    class Curious(Algorithm):
        name = "curious"

        def local_direction(self, step: LocalStep) -> Any:
            return step.gradient * float(step.gradient.sum() > -1e9)

    phases = Phases()
    config = make_config("engine=stacked", "num_rounds=2", "local_steps=7")
    run_on(DEVICE, config, algorithm=phases.watch(Curious()), callbacks=(phases,))
    assert phases.workers.reads.total() == 7
