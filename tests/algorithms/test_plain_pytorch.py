"""Every method of the platform equals an independent implementation in plain PyTorch, BatchNorm included."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from fl_platform.runs import metrics
from tests.algorithms import plain_pytorch as reference
from tests.algorithms.trajectories import ALGORITHMS, run
from tests.federations import SIZES

FIELDS = {
    "fedprox": ("mu=0.3",),
    "fedproxm": ("mu=0.3", "momentum_decay=0.6"),
    "moon": ("mu=2.0", "temperature=0.4"),
    "moonm": ("mu=2.0", "temperature=0.4", "momentum_decay=0.6"),
    "fedmlb": ("hybrid_weight=0.7", "similarity_weight=1.3", "temperature=2.0"),
    "fedmlbm": ("hybrid_weight=0.7", "similarity_weight=1.3", "temperature=2.0", "momentum_decay=0.6"),
    "fedavgm": ("momentum_decay=0.6",),
    "feddyn": ("alpha=0.05",),
    "mimelite": ("momentum_decay=0.6",),
    "mifam": ("momentum_decay=0.6",),
    "gradma_s": ("momentum_decay=0.5", "memory_decay=0.4", "memory_size=6"),
    "gradma": ("momentum_decay=0.5", "memory_decay=0.4", "memory_size=6"),
}
ARGUMENTS = ("cohort_size=2", "local_lr=0.3", "num_rounds=5")
proximal = partial(reference.proximal, 0.3)
contrastive = partial(reference.contrastive, 2.0, 0.4, reference.plain_network)
branched = partial(reference.branched, 0.7, 1.3, 2.0)
REFERENCES = {
    "fedavg": partial(reference.averaging, objective=reference.plain),
    "fedavgm": partial(reference.averaging, objective=reference.plain, momentum_decay=0.6),
    "fedprox": partial(reference.averaging, objective=proximal),
    "fedproxm": partial(reference.averaging, objective=proximal, momentum_decay=0.6),
    "moon": partial(reference.averaging, objective=contrastive),
    "moonm": partial(reference.averaging, objective=contrastive, momentum_decay=0.6),
    "fedmlb": partial(reference.averaging, objective=branched),
    "fedmlbm": partial(reference.averaging, objective=branched, momentum_decay=0.6),
    "scaffold": reference.scaffold,
    "feddyn": partial(reference.feddyn, alpha=0.05),
    "mimelite": partial(reference.mimelite, momentum_decay=0.6),
    "mifa": reference.mifa,
    "mifam": partial(reference.mifa, momentum_decay=0.6),
    "gradma_w": partial(reference.gradma, worker=True, server=False),
    "gradma_s": partial(reference.gradma, worker=False, server=True, momentum_decay=0.5, memory_decay=0.4),
    "gradma": partial(reference.gradma, worker=True, server=True, momentum_decay=0.5, memory_decay=0.4),
}


def check(
    name: str, equal_to: Callable[[reference.World], reference.Model], *args: str, sizes: tuple[int, ...] = SIZES,
    network: Callable[[], nn.Sequential] = reference.plain_network,
) -> None:  # fmt: skip
    fields = [f"algorithm.{field}" for field in FIELDS.get(name, ())]
    done = run(name, *fields, *args, sizes=sizes)
    params, buffers = equal_to(reference.World(done.module.config, sizes, network))
    assert torch.allclose(done.params, params, rtol=0, atol=1e-10)
    assert torch.allclose(done.module.global_buffers, buffers, rtol=0, atol=1e-10)
    assert (done.params - done.rounds[0]).norm() > 0.1
    for side in (metrics.QP_WORKER_ACTIVE, metrics.QP_SERVER_ACTIVE):  # some projection does something
        assert max(done.logged(side), default=1) > 0


@pytest.mark.parametrize("aggregation", ["uniform", "samples"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_equals_plain_pytorch(name, aggregation):
    """Partial participation, batches of unequal length, a tail of one sample (9 = 8 + 1) dropped."""
    rate = () if name == "feddyn" else ("server_lr=1.3",)
    check(name, REFERENCES[name], f"aggregation={aggregation}", *ARGUMENTS, *rate)


def test_gradma_from_the_global_model_equals_plain_pytorch():
    """previous_model=global, the released reading: x_{-1} = x_t."""
    check("gradma", partial(REFERENCES["gradma"], last_local=False), *ARGUMENTS, "algorithm.previous_model=global")


@pytest.mark.parametrize("name", ["moon", "moonm"])
def test_moon_with_its_projection_head_equals_plain_pytorch(name):
    objective = partial(reference.contrastive, 2.0, 0.4, reference.headed_network)
    equal_to = partial(REFERENCES[name], objective=objective)
    args = ("algorithm.projection_head=true", "server_lr=1.3")
    check(name, equal_to, *ARGUMENTS, *args, network=reference.headed_network)


def test_one_worker_is_centralised_sgd():
    """R14: N = S = 1 and server_lr = 1 go on with one SGD run, running statistics included."""

    def centralised(world: reference.World) -> reference.Model:
        at = world.start
        for _ in world.cohorts():
            at = world.sgd(at, 0, reference.plain)
        return at

    check("fedavg", centralised, "cohort_size=1", sizes=(30,))
