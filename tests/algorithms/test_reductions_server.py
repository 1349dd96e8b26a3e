"""Methods that change the server's step, and what holds for all: R2, R10, R14, R22, R23."""

import pytest
import torch

from tests.algorithms.trajectories import ALGORITHMS, run, watch
from tests.federations import SIZES

EVERYBODY = f"cohort_size={len(SIZES)}"
ALONE = {"sizes": (30,)}


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-12) -> bool:
    return torch.allclose(a, b, rtol=0, atol=tolerance)


def test_fedavgm_without_momentum_is_fedavg():
    """R2."""
    for rate in ("server_lr=0.7", "server_lr=1"):
        assert torch.equal(run("fedavgm", "algorithm.momentum_decay=0", rate).rounds, run("fedavg", rate).rounds)
    assert not close(run("fedavgm", "algorithm.momentum_decay=0.5").rounds[2], run("fedavg").rounds[2], 1e-6)


def test_fedavg_with_server_rate_one_is_the_mean_of_local_models():
    """R2."""
    done = watch("fedavg")
    for number, seen in enumerate(done.algorithm.server_steps):
        local = seen.before - seen.updates.delta
        assert close(done.rounds[number + 1], local.mean(0))


def test_sample_weights_are_the_cohorts_shares():
    done = watch("fedavg", "aggregation=samples")
    for number, seen in enumerate(done.algorithm.server_steps):
        sizes = torch.tensor([SIZES[worker] for worker in seen.updates.workers], dtype=torch.float64)
        local = seen.before - seen.updates.delta
        assert close(done.rounds[number + 1], (sizes[:, None] * local).sum(0) / sizes.sum())


def test_mifa_with_everybody_is_fedavg():
    """R10: the table holds this round's updates alone."""
    assert close(run("mifa", EVERYBODY).rounds, run("fedavg", EVERYBODY).rounds)
    assert close(run("mifam", EVERYBODY).rounds, run("fedavgm", EVERYBODY).rounds)


def test_mifa_first_round_is_a_share_of_fedavgs():
    """R10: the divisor is N = 6 for the S = 3 that reported."""
    mifa, fedavg = run("mifa", "server_lr=0.8"), run("fedavg", "server_lr=0.4")
    assert close(mifa.rounds[1], fedavg.rounds[1])
    assert not close(mifa.rounds[2], fedavg.rounds[2], 1e-6)


@pytest.mark.parametrize("aggregation", ["uniform", "samples"])
def test_mifa_descends_along_the_population_mean_of_latest_updates(aggregation):
    """R10: incremental form = table form after every round, partial participation."""
    done = watch("mifa", f"aggregation={aggregation}", "num_rounds=6")
    sizes = torch.tensor(SIZES, dtype=torch.float64)
    shares = torch.full_like(sizes, 1 / 6) if aggregation == "uniform" else sizes / sizes.sum()
    table = torch.zeros(6, done.params.numel(), dtype=torch.float64)
    for seen in done.algorithm.server_steps:
        table[seen.updates.workers] = seen.updates.delta
        assert close(seen.direction, shares @ table)
    assert torch.equal(done.table("latest_update"), table)


def test_mifam_is_momentum_on_the_mean_of_the_table():
    done = watch("mifam", "algorithm.momentum_decay=0.9", "num_rounds=5")
    table = torch.zeros(6, done.params.numel(), dtype=torch.float64)
    momentum = torch.zeros_like(done.params)
    for seen in done.algorithm.server_steps:
        table[seen.updates.workers] = seen.updates.delta
        momentum = 0.9 * momentum + table.mean(0)
        assert close(seen.direction, momentum)


def test_scaffold_of_one_worker_is_fedavg():
    """R14: c_i = c."""
    assert close(run("scaffold", "cohort_size=1", **ALONE).rounds, run("fedavg", "cohort_size=1", **ALONE).rounds)


def test_gradma_s_memory_of_one_worker_accumulates_its_updates():
    """R14: D = memory_decay D + d."""
    args = ("cohort_size=1", "algorithm.momentum_decay=0", "algorithm.memory_decay=0.3", "algorithm.memory_size=1")
    done = watch("gradma_s", *args, **ALONE)
    remembered = torch.zeros_like(done.params)
    for seen in done.algorithm.server_steps:
        remembered = 0.3 * remembered + seen.updates.delta[0]
    memory = done.algorithm.memory
    assert memory.workers == [0]
    assert close(memory.scale[0] * memory.rows[0], remembered)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_sample_weights_of_workers_of_one_size_are_uniform(name):
    """R22."""
    equal = {"sizes": (13,) * 6}
    uniform, samples = (run(name, f"aggregation={how}", "num_rounds=2", **equal) for how in ("uniform", "samples"))
    assert close(uniform.rounds, samples.rounds)
    assert close(uniform.buffers, samples.buffers)
    assert uniform.rounds.isfinite().all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_twice_the_server_rate_moves_the_first_round_twice_as_far(name):
    """R23; FedDyn too, since its server rate scales the whole step here."""
    once, twice = (run(name, f"server_lr={rate}", "num_rounds=1").rounds for rate in (0.5, 1))
    assert close(2 * (once[1] - once[0]), twice[1] - twice[0])
    assert (once[1] - once[0]).norm() > 1e-3
