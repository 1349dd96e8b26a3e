"""Rounds of W1, W1b and W2 against the arithmetic they contain."""

from functools import lru_cache

import torch
from torch import nn

from benchmarks.clock import Ratio, Seconds, in_turns, median, total
from benchmarks.federation import FULL_MEMORY, WARM_UP, Finished, run, w1_arguments
from benchmarks.layers import layer_bound
from benchmarks.machine import cores
from benchmarks.table import Entry, number
from fl_platform.engines.evaluation import batch_of
from fl_platform.federation.module import FederatedModule

ARITHMETIC = ("local steps", "evaluation", "worker QP", "local steps and evaluation")


@lru_cache(maxsize=16)
def w1(quick: bool, *args: str) -> Finished:
    """A run of W1 that several figures share."""
    return run(w1_arguments(*args), 8 if quick else 30)


def breakdown(finished: Finished) -> tuple[str, ...]:
    """Where a mean round goes, largest part first, and the bound of its arithmetic."""
    parts = sorted(finished.parts().items(), key=lambda part: -part[1].wall)
    lines = [f"{name:36} {milliseconds(seconds)}" for name, seconds in parts]
    rate = finished.rate()
    return (
        *lines,
        f"{'bound':36} {milliseconds(finished.bound())}  "
        f"({finished.flop() / 1e9:.2f} GFLOP a round, sgemm {rate.wall / 1e9:.0f} GFLOP/s)",
    )


def milliseconds(seconds: Seconds) -> str:
    return f"{1000 * seconds.wall:8.2f} ms ({1000 * seconds.cpu:.2f} by CPU time)"


def one_thread(quick: bool) -> list[Entry]:
    """W1 and W1b on one thread, over the bound."""
    plain, normed = w1(quick), w1(quick, "model.norm=batch")
    return [
        Entry("w1_fedavg_1_thread", plain.round / plain.bound(), "x bound", "<= 1.25", breakdown(plain)),
        Entry("w1b_fedavg_1_thread", normed.round / normed.bound(), "x bound", "<= 1.35", breakdown(normed)),
    ]


def around(quick: bool) -> list[Entry]:
    """What a round of W1 costs besides local steps and evaluation."""
    parts = {name: seconds for name, seconds in w1(quick).parts().items() if name not in ARITHMETIC}
    cost = total(list(parts.values())) * 1000
    lines = [f"{name:36} {milliseconds(parts[name])}" for name in sorted(parts, key=lambda name: -parts[name].wall)]
    value = Ratio(cost.wall, cost.cpu)
    return [Entry("everything_around_the_arithmetic", value, "ms a round", "<= 6", tuple(lines))]


def gradma(quick: bool) -> list[Entry]:
    """GradMA against FedAvg before and after it, and the share of its projections, whole vector and per tensor."""
    rounds, args = 5 if quick else 15, ("algorithm.name=gradma", "algorithm.memory_size=100")
    warm_up = WARM_UP if quick else FULL_MEMORY
    before = w1(quick)
    whole = run(w1_arguments(*args), rounds, warm_up)
    after = run(w1_arguments(), rounds)
    tensor = run(w1_arguments(*args, "algorithm.qp.scope=tensor"), rounds, warm_up)
    fedavg = median([before.round, after.round])
    entries = [Entry("w1_gradma_m_100", whole.round / fedavg, "x FedAvg round", "<= 1.8", breakdown(whole))]
    for scope, finished in (("per_tensor", tensor), ("whole_vector", whole)):
        mean = total(finished.watch.rounds) * (1 / len(finished.watch.rounds))
        share = finished.parts()["worker QP"] / mean * 100
        why = (f"{milliseconds(finished.parts()['worker QP'])} of {milliseconds(mean)}, in 50 projections",)
        entries.append(Entry(f"worker_qp_s_10_{scope}", share, "% of the round", "<= 3", why))
    return entries


def omega(quick: bool) -> list[Entry]:
    """Training time where most workers own few samples, over that where they own many."""
    few, many = w1(quick, "data.dirichlet_omega=0.01"), w1(quick)
    value = few.parts()["local steps"] / many.parts()["local steps"]
    samples = [sum(f.watch.samples) / len(f.watch.samples) for f in (few, many)]
    why = (f"{number(samples[0])} samples a round against {number(samples[1])}",)
    return [Entry("w1_at_omega_0_01", value, "x training time at omega=1", "<= 0.55", why)]


def evaluation(quick: bool) -> list[Entry]:
    """One evaluation with loss and per-class figures, against a bare forward pass of the same module and images."""
    module = w1(quick).module
    images = module.test_samples.whole()
    weights = module.network.parameters.views(module.global_params)
    chunks = torch.split(images, batch_of(module.network, weights, module.global_buffers, images))
    bare = exported(module)

    @torch.no_grad()
    def forward() -> None:
        for chunk in chunks:
            bare(chunk)

    once, plain = in_turns(5 if quick else 15, lambda: evaluate(module), forward)
    return [Entry("one_evaluation", once / plain, "x bare forward", "<= 1.15")]


def evaluate(module: FederatedModule) -> None:
    module.evaluate()


def exported(module: FederatedModule) -> nn.Module:
    """A plain nn.Module with the global model's values."""
    return module.network.export(module.global_params, module.global_buffers).eval()


def all_cores(quick: bool) -> list[Entry]:
    """Rounds per second with a thread on every core, over one thread."""
    many = run(w1_arguments(f"threads={cores()}"), 5 if quick else 30)
    speedup = w1(quick).round.wall / many.round.wall
    name = "w1_fedavg_all_cores_of_an_idle_machine"
    return [Entry(name, Ratio(speedup), "x rounds/s of 1 thread", ">= 1.85", breakdown(many))]


def w2(quick: bool) -> list[Entry]:
    """LeNet-5 on images of CIFAR-10's shape, over its convolutions and linear layers alone; and in bfloat16."""
    data = "random_cifar10_small" if quick else "random_cifar10"
    args = [word for word in w1_arguments() if not word.startswith(("data.name", "model.name"))]
    args, count = [*args, f"data.name={data}", "model.name=lenet5"], 2 if quick else 4
    finished = run(args, count)
    bound = layer_bound(finished.module, sum(finished.watch.samples) / len(finished.watch.samples), count)
    mixed = run([*args, "precision=bf16-mixed"], count)
    means = [total(one.watch.rounds) * (1 / len(one.watch.rounds)) for one in (finished, mixed)]
    why = (*breakdown(finished), f"{'its layers alone':36} {milliseconds(bound)}")
    return [
        Entry("w2_cifar_10_shape_lenet5", means[0] / bound, "x bound of its layers", "<= 1.15", why),
        Entry("w2_bf16_mixed", means[0] / means[1], "x faster than float32", ">= 1.7", breakdown(mixed)),
    ]
