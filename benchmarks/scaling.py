"""How cost grows with workers N, cohort S, parameters d and memory m: figures, exponents and a plot."""

import math
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.clock import Ratio, in_turns
from benchmarks.federation import Finished, run
from benchmarks.machine import memory_bytes
from benchmarks.server import Server
from benchmarks.synthetic import MOST_WORKERS, PLUGIN, width_for
from benchmarks.table import Entry
from fl_platform.reporting import canvas

MEMORY_DIMENSION = 50_000
WIDE = "benchmarks.synthetic.Wide"


@dataclass(frozen=True)
class Curve:
    """Seconds at sizes."""

    name: str
    label: str
    sizes: list[int]
    seconds: list[float]

    def exponent(self) -> float:
        """The slope between the two largest sizes, where fixed costs are smallest: 1 is linear."""
        (small, large), (fast, slow) = self.sizes[-2:], self.seconds[-2:]
        return math.log(slow / fast) / math.log(large / small)

    def lines(self) -> tuple[str, ...]:
        return tuple(f"{size:>10,}  {1000 * s:10.2f} ms" for size, s in zip(self.sizes, self.seconds, strict=True))


def small_args(*args: str) -> list[str]:
    return [
        PLUGIN, "model.name=mlp", "model.norm=none", "data.partition=iid", "evaluation.every=1000000",
        "local_lr=0.001", "checkpoint.every=0", "trainer.enable_progress_bar=false", "device=cpu", *args,
    ]  # fmt: skip


def over_workers(quick: bool) -> tuple[Curve, list[Entry]]:
    """N workers of which ten are sampled; the state of workers seen is all that is kept of any (Scaffold)."""
    sizes = [100, 10_000] if quick else [100, 10_000, MOST_WORKERS]
    data, rounds = ("random_small", 10) if quick else ("random_millions", 60)
    seconds, start, growth = [], 0.0, 0.0
    for size in sizes:
        before, started = memory_bytes(), time.perf_counter()
        args = small_args(f"data.name={data}", f"num_workers={size}", "cohort_size=10", "algorithm.name=scaffold")
        finished = run([*args, "batch_size=2"], rounds)  # a worker of ten million owns two samples
        seconds.append(finished.round.wall)
        start = time.perf_counter() - started - sum(r.wall for r in finished.watch.rounds)
        growth = (finished.watch.memory[-1] - before) / 1e6
    curve = Curve("n", "workers N", sizes, seconds)
    flat = max(seconds) / seconds[0]
    return curve, [
        *([] if quick else [natural_start()]),
        Entry("scaling_n_round_time", Ratio(flat), "x round at N=100", "<= 1.1", curve.lines()),
        Entry("scaling_n_start_up", Ratio(start), f"s at N={sizes[-1]:,}, data and all", "<= 30"),
        Entry("scaling_n_memory", Ratio(growth), f"MB more at N={sizes[-1]:,}, data and all"),
    ]


def natural_start() -> Entry:
    """Ten million workers by nature: owners of unequal numbers of samples."""
    started = time.perf_counter()
    args = small_args("data.name=random_owners", "data.partition=natural", "cohort_size=10", "batch_size=2")
    finished = run(args, 20)
    start = time.perf_counter() - started - sum(r.wall for r in finished.watch.rounds)
    return Entry("scaling_n_natural_start_up", Ratio(start), f"s at N={MOST_WORKERS:,} owners, data and all", "<= 30")


def timed_run(rounds: int, *args: str) -> float:
    finished: Finished = run(small_args(*args), rounds)
    return finished.round.wall


def over_cohort(quick: bool) -> tuple[Curve, list[Entry]]:
    sizes = [1, 10, 100] if quick else [1, 10, 100, 1000]
    args = ("data.name=random_small", "num_workers=1000")
    seconds = [timed_run(max(2, min(40, 400 // size)), *args, f"cohort_size={size}") for size in sizes]
    curve = Curve("s", "cohort S", sizes, seconds)
    return curve, [Entry("scaling_s_exponent", Ratio(curve.exponent()), "of S", "<= 1.1", curve.lines())]


def over_parameters(quick: bool) -> tuple[Curve, list[Entry]]:
    sizes = [10**4, 10**5, 10**6] if quick else [10**4, 10**5, 10**6, 10**7]
    args = ("data.name=random_small", "num_workers=100", "cohort_size=4", "local_steps=2", "batch_size=8")
    seconds = [
        timed_run(3 if size >= 10**7 else 15, *args, f"model.name={WIDE}", f"model.options.width={width_for(size)}")
        for size in sizes
    ]
    curve = Curve("d", "parameters d", sizes, seconds)
    return curve, [Entry("scaling_d_exponent", Ratio(curve.exponent()), "of d", "<= 1.1", curve.lines())]


def over_memory(quick: bool) -> tuple[Curve, list[Entry]]:
    """Server steps with ten updates, as S m d grows through m."""
    sizes = [10, 100] if quick else [10, 100, 1000]
    seconds = []
    for size in sizes:
        server = Server(size, MEMORY_DIMENSION)
        [step] = in_turns(3 if size >= 1000 else 10, lambda server=server: server.step(server.deltas))  # type: ignore[misc]
        seconds.append(step.wall)
    curve = Curve("m", "memory m", sizes, seconds)
    return curve, [Entry("scaling_m_exponent", Ratio(curve.exponent()), "of m", "<= 1.1", curve.lines())]


def scaling(quick: bool) -> list[Entry]:
    entries, curves = [], []
    for measure in (over_workers, over_cohort, over_parameters, over_memory):
        curve, found = measure(quick)
        curves.append(curve)
        entries += found
    draw(curves, Path("build") / "bench" / "scaling.png")
    return entries


def draw(curves: list[Curve], place: Path) -> None:
    """One panel a curve, both axes logarithmic, with a dashed line of slope 1."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with canvas.drawing(**{"text.parse_math": True}):  # powers of ten
        figure, axes = canvas.panels(len(curves))
        for axis, curve in zip(axes, curves, strict=True):
            axis.loglog(curve.sizes, [1000 * s for s in curve.seconds], marker="o", label="measured")
            if curve.name != "n":
                last, size = 1000 * curve.seconds[-1], curve.sizes[-1]
                axis.loglog(
                    curve.sizes, [last * s / size for s in curve.sizes], linestyle="--", color="grey", label="linear"
                )
            else:
                axis.set_ylim(bottom=300 * min(curve.seconds), top=3000 * max(curve.seconds))
            axis.set_xlabel(curve.label)
        axes[0].set_ylabel("Milliseconds a round or step")
        axes[-1].legend(fontsize=7)
        figure.savefig(place, metadata={"Software": None})
