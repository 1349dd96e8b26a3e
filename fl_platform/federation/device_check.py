"""Two rounds of every method on a device beside the CPU, with times: what ``doctor --device`` reports."""

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor

from fl_platform.algorithms import base
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.engines.choice import ENGINES
from fl_platform.engines.device_memory import DeviceMemory
from fl_platform.errors import OutOfMemory, UserError
from fl_platform.federation.build import build, make_algorithm
from fl_platform.federation.module import FederatedModule
from fl_platform.federation.round import Model
from fl_platform.federation.trainer import attach, check_device, make_trainer, quieten_lightning
from fl_platform.federation.training_pool import load_cuda_kernels
from fl_platform.kernels.graphs import CAPTURES
from fl_platform.models.network import PRECISIONS
from fl_platform.runs import metrics
from fl_platform.tracking.identity import git_state

SMALL = (
    "data.name=digits", "num_workers=10", "cohort_size=3", "local_steps=3", "batch_size=16", "num_rounds=2",
    "evaluation.every=2", "algorithm.memory_size=10", "tracking.mode=disabled", "trainer.enable_progress_bar=false",
)  # fmt: skip
CONVOLUTIONS = ("model.name=resnet20", "model.width=4", "local_lr=0.001", "seed=1")
"""Short steps, as long ones amplify round-off, and a seed for which it moves no activation of the CPU's across zero."""
TIMED = ("cohort_size=10", "local_steps=5", "batch_size=64", "num_rounds=4")
ALLOWED = 16.0
"""How many times as far from float64 as the CPU's float32 a device may be: it adds up in another order."""
REPEATED = {None: "", True: "yes", False: "NO"}
FAILURES = (RuntimeError, ValueError, TypeError, LookupError, UserError, OutOfMemory)
"""What a device that something does not run on raises; the report says so, and the others go on."""


@dataclass(frozen=True)
class Agreement:
    """How far a method in float32 on the device, and on the CPU, is from the CPU in float64.

    Lengths of the differences of all parameters, as shares of the way they went. The largest difference would tell
    little: it is that of a BatchNorm scale, which is near 1 and moves least, and shows how float32 stores it.
    """

    algorithm: str
    engine: str
    device: float | None  # None where it failed
    cpu: float
    error: str = ""
    model: str = "mlp"
    repeats: bool | None = None  # whether a second run had the same bits; None where there was none

    @property
    def is_ok(self) -> bool:
        return self.device is not None and self.device <= ALLOWED * self.cpu and self.repeats is not False

    def __str__(self) -> str:
        """What a cell says: the distance, or what went wrong."""
        return f"{self.error}" if self.device is None else f"{self.device:.1e}"


@dataclass(frozen=True)
class Timing:
    """The fastest round of FedAvg on digits, and the largest memory it took on CUDA."""

    engine: str
    precision: str
    seconds: float | None  # None where it failed
    bytes: int | None
    graphs: bool = False
    error: str = ""

    def __str__(self) -> str:
        """Two cells: milliseconds and megabytes, or what went wrong."""
        if self.seconds is None:
            return f"{self.error} |"
        return f"{1000 * self.seconds:.2f} | {'not measured' if self.bytes is None else f'{self.bytes / 1e6:.1f}'}"


@dataclass(frozen=True)
class DeviceReport:
    """What ``doctor --device`` found."""

    device: str
    name: str
    about: dict[str, str]
    agreements: list[Agreement]
    timings: list[Timing]
    minutes: float

    @property
    def is_ok(self) -> bool:
        return all(agreement.is_ok for agreement in self.agreements) and not any(t.error for t in self.timings)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {"ok": self.is_ok, **asdict(self)}

    def markdown(self) -> str:
        """The report as a page."""
        agreeing = sum(agreement.is_ok for agreement in self.agreements)
        lines = [
            f"# {self.name} ({self.device})",
            "",
            f"{agreeing} of {len(self.agreements)} comparisons agree with the CPU. Took {self.minutes:.1f} minutes. "
            "Please send this page and the JSON beside it, also where everything agrees: few devices have been tried.",
            "",
            *(f"- {part}: {found}" for part, found in self.about.items()),
            "",
            "## Every method beside the CPU",
            "",
            "Two rounds on digits in float32: distance from the CPU in float64, as a share of the way that the "
            f"workers' models went. A device agrees if it is at most {ALLOWED:.0f} times as far as the CPU in float32, "
            "and where the run was done twice, if both have the same bits.",
            "",
            "| algorithm | model | engine | device | CPU | same bits twice | agrees |",
            "|---|---|---|---|---|---|---|",
            *(
                f"| {a.algorithm} | {a.model} | {a.engine} | {a} | {a.cpu:.1e} | {REPEATED[a.repeats]} | "
                f"{'yes' if a.is_ok else 'NO'} |"
                for a in sorted(self.agreements, key=lambda a: a.is_ok)  # what does not agree comes first
            ),
            "",
            "## Times",
            "",
            "The fastest of four rounds of FedAvg with `mlp`, ten workers with five steps of 64. "
            "`python -m benchmarks --device` measures larger models.",
            "",
            "| engine | precision | graphs | milliseconds per round | MB at most |",
            "|---|---|---|---|---|",
            *(f"| {t.engine} | {t.precision} | {'yes' if t.graphs else 'no'} | {t} |" for t in self.timings),
        ]
        return "\n".join(lines) + "\n"


def examine_device(
    device: str, algorithms: list[str] | None = None, say: Callable[[str], None] = lambda line: None
) -> DeviceReport:
    """Run the methods (all without a list) on a device and compare; ``say`` is given a line after each.

    What raises on the device is noted in the report. Raises UserError for a device that is not there.
    """
    check_device("--device", device, "cpu")
    torch.set_num_threads(1)
    quieten_lightning()
    began, agreements, names = time.monotonic(), list[Agreement](), algorithms or base.names()
    comparisons = {name: partial(compare, device, name) for name in names}
    comparisons["fedavg with convolutions"] = partial(compare, device, "fedavg", *CONVOLUTIONS, repeats=True)
    for number, (title, comparison) in enumerate(comparisons.items(), start=1):
        compared = list(comparison())
        agreements += compared
        found = ", ".join(f"{a.engine} {a}" for a in compared)
        verdict = "agrees" if all(a.is_ok for a in compared) else "DOES NOT AGREE"
        say(f"[{number}/{len(comparisons)}] {title}: {verdict} ({found}), {time.monotonic() - began:.0f} s so far")
    cases = [(engine, precision, False) for engine in ENGINES for precision in PRECISIONS]
    if torch.device(device).type in CAPTURES:
        cases.append(("stacked", "float32", True))
    say(f"times of {len(cases)} combinations of engine, precision and graphs")
    timings = [timed(device, engine, precision, graphs=graphs) for engine, precision, graphs in cases]
    title = torch.cuda.get_device_name(device) if device.startswith("cuda") else device.upper()
    minutes = (time.monotonic() - began) / 60
    return DeviceReport(device, title, described(device), agreements, timings, minutes)


def described(device: str) -> dict[str, str]:
    """Versions, and on CUDA what the card is and which kernels it uses."""
    commit = git_state()["commit"] or "not known (installed package)"
    about = {
        "commit": str(commit),
        "torch": torch.__version__,
        "Lightning": L.__version__,
        "Python": platform.python_version(),
        "system": platform.platform(),
    }
    if device.startswith("cuda"):
        card = torch.cuda.get_device_properties(device)
        about |= {
            "CUDA": f"{torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",  # type: ignore[no-untyped-call]
            "devices of this kind": str(torch.cuda.device_count()),
            "compute capability": f"{card.major}.{card.minor}",
            "memory": f"{card.total_memory / 1e9:.1f} GB",
            "kernels of padded BatchNorm": "Triton" if load_cuda_kernels() else "plain operations, Triton is missing",
        }
    return about


def compare(device: str, name: str, *more: str, repeats: bool = False) -> Iterator[Agreement]:
    """A method on both engines, beside the CPU, with the keys that it needs; ``repeats``: twice on the device."""
    method = (f"algorithm.name={name}", *(need.partition("|")[0] for need in base.get(name).needs), *more)
    exact = trained(*method, "device=cpu", "engine=loop", "precision=float64")
    model = str(exact.config.model.name)
    for engine in ENGINES:
        args = (*method, f"engine={engine}")
        here = distance(trained(*args, "device=cpu"), exact)
        try:
            first = trained(*args, f"device={device}")
            is_same = trained(*args, f"device={device}").fingerprint() == first.fingerprint() if repeats else None
            yield Agreement(name, engine, distance(first, exact), here, model=model, repeats=is_same)
        except FAILURES as error:
            yield Agreement(name, engine, None, here, in_short(error), model)


def in_short(error: Exception) -> str:
    """An error in one line that fits a cell of a table."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".replace("|", "/")[:200]


def trained(*arguments: str) -> FederatedModule:
    """The module of a small federation after its rounds; the size of a memory is dropped where there is none."""
    spec = resolve(compose([*SMALL, *arguments]), drop_unused=True)
    algorithm = make_algorithm(spec.config)
    module = build(spec.config, algorithm)
    attach(make_trainer(spec), [], [algorithm]).fit(module)
    return module


def distance(module: FederatedModule, exact: FederatedModule) -> float:
    """|x - exact| / |exact - x_0| of the workers' models after the rounds; of most methods that is the server's."""
    found, target = (workers_models(each) for each in (module, exact))
    way = target - exact.network.initial_params.double()
    return float(torch.linalg.vector_norm(found - target) / torch.linalg.vector_norm(way))


def workers_models(module: FederatedModule) -> Tensor:
    """(N, d): the parameters that each worker would use next."""
    server, workers = module.server, np.arange(module.config.num_workers or 0)
    place = server.initial.params.device  # Lightning has moved the module itself to the CPU
    model = Model(module.global_params.to(place), module.global_buffers.to(place))
    params, _ = server.algorithm.worker_model(server.start(model, workers))
    return params.detach().cpu().double().expand(len(workers), -1)


def timed(device: str, engine: str, precision: str, *, graphs: bool = False) -> Timing:
    """The fastest round; the first, which allocates, is not the fastest."""
    args = (f"device={device}", f"engine={engine}", f"precision={precision}", f"graphs={graphs}")
    memory, most = DeviceMemory(torch.device(device)), None
    try:
        if memory.is_told:
            module, most = memory.measured(partial(trained, *TIMED, *args))
        else:
            module = trained(*TIMED, *args)
    except FAILURES as error:
        return Timing(engine, precision, None, None, graphs, in_short(error))
    return Timing(engine, precision, min(row[metrics.ROUND_SECONDS] for row in module.history), most, graphs)
