"""Every benchmark by name, in the order they run."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import memory_use, processes, projection, rounds, scaling, server
from benchmarks.clock import Ratio
from benchmarks.federation import threads
from benchmarks.table import Entry
from fl_platform.errors import UserError, unknown_name

Measure = Callable[[bool], list[Entry]]


@dataclass(frozen=True)
class Benchmark:
    """A measurement and the names of the figures it gives."""

    group: str
    measure: Measure
    names: tuple[str, ...]


BENCHMARKS = (
    Benchmark("rounds", rounds.one_thread, ("w1_fedavg_1_thread", "w1b_fedavg_1_thread")),
    Benchmark("rounds", rounds.around, ("everything_around_the_arithmetic",)),
    Benchmark("rounds", rounds.evaluation, ("one_evaluation",)),
    Benchmark("rounds", rounds.all_cores, ("w1_fedavg_all_cores_of_an_idle_machine",)),
    Benchmark("rounds", rounds.gradma, ("w1_gradma_m_100", "worker_qp_s_10_per_tensor", "worker_qp_s_10_whole_vector")),
    Benchmark("projection", projection.parts, ("one_projection_whole_vector", "one_projection_per_tensor")),
    Benchmark("projection", projection.against_cvxpylayers, ("exact_worker_qp_against_cvxpylayers",)),
    Benchmark("server", server.step, ("server_step_at_m_100_d_178710",)),
    Benchmark("rounds", rounds.omega, ("w1_at_omega_0_01",)),
    Benchmark("rounds", rounds.w2, ("w2_cifar_10_shape_lenet5", "w2_bf16_mixed")),
    Benchmark("memory", memory_use.peak, ("peak_memory_w1_all_algorithms",)),
    Benchmark("memory", memory_use.growth, ("memory_growth_w1_fedavg",)),
    Benchmark("ddp", processes.two_ranks, ("ddp_2_processes_s_50",)),
    Benchmark(
        "scaling",
        scaling.scaling,
        (
            "scaling_n_round_time",
            "scaling_n_start_up",
            "scaling_n_memory",
            "scaling_s_exponent",
            "scaling_d_exponent",
            "scaling_m_exponent",
        ),
    ),
)


def chosen(only: list[str]) -> list[Benchmark]:
    """The benchmarks of the given groups or figures; all for none."""
    known = {name for benchmark in BENCHMARKS for name in (benchmark.group, *benchmark.names)}
    for name in only:
        if name not in known:
            raise unknown_name("--only", name, known)
    return [b for b in BENCHMARKS if not only or {b.group, *b.names} & set(only)]


def measure(only: list[str], quick: bool, say: Callable[[str], None]) -> list[Entry]:
    """Run benchmarks and keep the figures that were asked for."""
    entries: list[Entry] = []
    for benchmark in chosen(only):
        started = time.perf_counter()
        try:
            with threads(1):
                found = benchmark.measure(quick)
        except UserError as error:  # what cannot be measured here must not cost the other figures
            found = [Entry(name, Ratio(math.nan), "not measured", "", (str(error),)) for name in benchmark.names]
        entries += [e for e in found if not only or benchmark.group in only or e.name in only]
        say(f"{', '.join(benchmark.names)}: {time.perf_counter() - started:.0f} s")
    return entries
