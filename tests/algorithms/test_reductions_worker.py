"""Methods that change the workers' steps: what they become at the edges of their hyper-parameters (R1, R3-R9)."""

import torch

from tests.algorithms.trajectories import DROPOUT, PLAIN, run, watch
from tests.federations import SIZES

EVERYBODY = f"cohort_size={len(SIZES)}"


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-12) -> bool:
    return torch.allclose(a, b, rtol=0, atol=tolerance)


def test_fedprox_without_penalty_is_fedavg():
    """R1."""
    assert torch.equal(run("fedprox", "algorithm.mu=0").rounds, run("fedavg").rounds)
    assert torch.equal(run("fedproxm", "algorithm.mu=0").rounds, run("fedavgm").rounds)
    assert not close(run("fedprox", "algorithm.mu=0.1").rounds[1], run("fedavg").rounds[1], 1e-6)


def test_fedprox_first_local_step_is_fedavgs():
    """The penalty has no gradient at x_t."""
    assert torch.equal(run("fedprox", "algorithm.mu=9", "local_steps=1").rounds, run("fedavg", "local_steps=1").rounds)


def test_moon_without_contrast_is_fedavg():
    """R3, with dropout: the passes of the frozen models draw nothing."""
    assert torch.equal(run("moon", DROPOUT, "algorithm.mu=0").rounds, run("fedavg", DROPOUT).rounds)
    assert close(run("moon", DROPOUT, "algorithm.mu=1e-30").rounds, run("fedavg", DROPOUT).rounds)
    assert torch.equal(run("moonm", DROPOUT, "algorithm.mu=0").rounds, run("fedavgm", DROPOUT).rounds)


def test_moon_workers_seen_for_the_first_time_are_fedavgs():
    """R3: with v_i = x_t both cosines agree and the contrastive gradient vanishes."""
    moon, fedavg = run("moon", "cohort_size=2", "num_rounds=5"), run("fedavg", "cohort_size=2", "num_rounds=5")
    seen: set[int] = set()
    fresh = 0
    for cohort in moon.logged("cohort/workers"):
        if seen & set(cohort):
            break
        seen |= set(cohort)
        fresh += 1
    assert 1 < fresh < 5
    assert close(moon.rounds[: fresh + 1], fedavg.rounds[: fresh + 1])
    assert not close(moon.rounds[fresh + 1], fedavg.rounds[fresh + 1], 1e-6)


def test_fedmlb_without_weights_is_fedavg():
    """R4, with dropout: hybrid paths draw masks of their own and leave the main path and its statistics alone."""
    off = ("algorithm.hybrid_weight=0", "algorithm.similarity_weight=0")
    faint = ("algorithm.hybrid_weight=1e-30", "algorithm.similarity_weight=1e-30")
    fedavg = run("fedavg", DROPOUT)
    assert torch.equal(run("fedmlb", DROPOUT, *off).rounds, fedavg.rounds)
    assert torch.equal(run("fedmlbm", DROPOUT, *off).rounds, run("fedavgm", DROPOUT).rounds)
    branched = run("fedmlb", DROPOUT, *faint)
    assert close(branched.rounds, fedavg.rounds)
    assert close(branched.buffers, fedavg.buffers)


def test_fedmlb_first_step_weighs_block_j_by_its_hybrid_paths():
    """R5: at x_t hybrid path k has the gradient of the main path in blocks 1..k and none behind; KL has none at all.

    So block j of 1..M is in M - j + 1 of M hybrid paths and its gradient is 1 + hybrid_weight (M - j + 1) / M times
    FedAvg's; block M + 1 is in none.
    """
    weight = 0.7
    fedavg = watch("fedavg", "local_steps=1", "num_rounds=1")
    fedmlb = watch("fedmlb", "local_steps=1", "num_rounds=1", f"algorithm.hybrid_weight={weight}")
    layout = fedavg.module.network.parameters
    assert {name.split(".")[0] for name in layout.names} == {"0", "1", "2"}
    paths = 2
    for name, (start, stop) in zip(layout.names, layout.segments, strict=True):
        block = int(name.split(".")[0]) + 1
        factor = 1 + weight * (paths - block + 1) / paths
        plain = fedavg.algorithm.steps[0].gradient[:, start:stop]
        assert close(fedmlb.algorithm.steps[0].gradient[:, start:stop], factor * plain), name
        assert plain.abs().max() > 1e-4 or name in ("0.1.bias", "1.0.bias")  # before BatchNorm: no gradient


def test_scaffold_first_round_is_fedavgs():
    """R6: control variates start at zero."""
    scaffold, fedavg = run("scaffold"), run("fedavg")
    assert torch.equal(scaffold.rounds[1], fedavg.rounds[1])
    assert not close(scaffold.rounds[2], fedavg.rounds[2], 1e-6)


def test_scaffold_with_everybody_and_one_step_is_fedavg():
    """R6: the corrections c - c_i have mean zero and nobody has moved between them and the gradient."""
    one, several = (EVERYBODY, "local_steps=1"), (EVERYBODY, "local_steps=3")
    assert close(run("scaffold", *one).rounds, run("fedavg", *one).rounds)
    assert not close(run("scaffold", *several).rounds[2], run("fedavg", *several).rounds[2], 1e-6)


def test_scaffold_control_is_the_mean_local_gradient_and_its_mean_the_servers():
    """R7, under both weightings: c is the population average of all c_i, those never seen at zero."""
    for aggregation in ("uniform", "samples"):
        done = watch("scaffold", f"aggregation={aggregation}", "num_rounds=5")
        controls = done.table("control")
        last = {}
        for number, server in enumerate(done.algorithm.server_steps):
            steps = list(done.algorithm.steps)[3 * number : 3 * number + 3]
            mean = torch.stack([step.gradient for step in steps]).mean(0)
            last |= {int(worker): mean[row] for row, worker in enumerate(server.updates.workers)}
        assert len(last) > 3
        for worker, mean in last.items():
            assert close(controls[worker], mean)
        sizes = torch.tensor(SIZES, dtype=torch.float64)
        shares = torch.full_like(sizes, 1 / 6) if aggregation == "uniform" else sizes / sizes.sum()
        assert close(done.algorithm.control, shares @ controls)


def test_feddyn_server_holds_the_population_mean_of_displacements():
    """R8: h = mean_N g_i, in the form with u_i = -g_i / alpha; partial participation, both weightings."""
    for aggregation in ("uniform", "samples"):
        done = run("feddyn", f"aggregation={aggregation}", "num_rounds=5")
        sizes = torch.tensor(SIZES, dtype=torch.float64)
        shares = torch.full_like(sizes, 1 / 6) if aggregation == "uniform" else sizes / sizes.sum()
        assert close(done.algorithm.mean_displacement, shares @ done.table("displacement"))


def test_feddyn_with_vanishing_alpha_starts_like_fedavg_with_a_longer_server_step():
    """R8: the first round has u_i = x_I - x_t, so x_1 = x_0 - (1 + S/N) avg_S(d)."""
    feddyn = run("feddyn", "algorithm.alpha=1e-300")
    assert close(feddyn.rounds[1], run("fedavg", "server_lr=1.5").rounds[1])
    assert not close(feddyn.rounds[2], run("fedavg", "server_lr=1.5").rounds[2], 1e-6)


def test_feddyn_first_round_of_everybody_reflects_the_mean_model():
    """R8: x_1 = 2 mean(x_I) - x_0 for any alpha."""
    done = watch("feddyn", EVERYBODY, "algorithm.alpha=0.1", "num_rounds=1")
    local = done.rounds[0] - done.algorithm.server_steps[0].updates.delta
    assert close(done.rounds[1], 2 * local.mean(0) - done.rounds[0])


def test_feddyn_alpha_adapt_is_the_same_for_workers_of_one_size():
    equal = {"sizes": (12,) * 6}
    adapted = run("feddyn", "algorithm.alpha_adapt=true", **equal)
    assert torch.equal(adapted.rounds, run("feddyn", **equal).rounds)
    assert not close(run("feddyn", "algorithm.alpha_adapt=true").rounds[1], run("feddyn").rounds[1], 1e-6)


def test_mimelite_without_momentum_is_fedavg():
    """R9."""
    for convention in ("ema", "heavy_ball"):
        args = ("algorithm.momentum_decay=0", f"algorithm.convention={convention}")
        assert torch.equal(run("mimelite", *args).rounds, run("fedavg").rounds)


def test_mimelite_first_round_is_fedavg_with_a_shorter_local_step():
    """R9: the server's statistic is still zero."""
    mime = run("mimelite", "algorithm.momentum_decay=0.9", "local_lr=0.1")
    fedavg = run("fedavg", "local_lr=0.01")
    assert close(mime.rounds[1], fedavg.rounds[1])
    assert not close(mime.rounds[2], fedavg.rounds[2], 1e-6)


def test_mimelite_conventions_differ_by_a_factor_of_the_local_rate():
    """R9: heavy ball at local_lr is the exponential average at local_lr / (1 - beta), in every round."""
    for statistic in ("full", "round"):
        args = ("algorithm.momentum_decay=0.75", f"algorithm.statistic={statistic}")
        heavy = run("mimelite", *args, "algorithm.convention=heavy_ball", "local_lr=0.05")
        average = run("mimelite", *args, "algorithm.convention=ema", "local_lr=0.2")
        assert close(heavy.rounds, average.rounds, 1e-11)
    assert not close(heavy.rounds[2], run("mimelite", *args, "local_lr=0.05").rounds[2], 1e-6)


def test_mimelite_round_statistic_is_the_full_one_for_workers_of_one_batch():
    """Every step of a worker with no more samples than a batch sees all of them."""
    full, short = run("mimelite", PLAIN, "batch_size=32"), run("mimelite", "batch_size=32", "algorithm.statistic=round")
    assert close(full.rounds, short.rounds)
    apart = run("mimelite"), run("mimelite", "algorithm.statistic=round")
    assert not close(apart[0].rounds[2], apart[1].rounds[2], 1e-8)
