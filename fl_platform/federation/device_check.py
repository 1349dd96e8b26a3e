"""Two rounds of every method on a device beside the CPU, with times: what ``doctor --device`` reports."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from fl_platform.algorithms import base
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.engines.choice import ENGINES
from fl_platform.federation.build import build, make_algorithm
from fl_platform.federation.launch import attach, check_device, make_trainer, quieten_lightning
from fl_platform.federation.module import FederatedModule
from fl_platform.kernels.graphs import CAPTURES
from fl_platform.models.network import PRECISIONS
from fl_platform.runs import metrics

SMALL = (
    "data.name=digits", "num_workers=10", "cohort_size=3", "local_steps=3", "batch_size=16", "num_rounds=2",
    "evaluation.every=2", "algorithm.memory_size=10", "tracking.mode=disabled", "trainer.enable_progress_bar=false",
)  # fmt: skip
TIMED = ("cohort_size=10", "local_steps=5", "batch_size=64", "num_rounds=4")
ALLOWED = 16.0
"""How many times as far from float64 as the CPU's float32 a device may be: it adds up in another order."""


@dataclass(frozen=True)
class Agreement:
    """How far a method in float32 on the device, and on the CPU, is from the CPU in float64.

    Lengths of the differences of all parameters, as shares of the way they went. The largest difference would tell
    little: it is that of a BatchNorm scale, which is near 1 and moves least, and shows how float32 stores it.
    """

    algorithm: str
    engine: str
    device: float
    cpu: float

    @property
    def is_ok(self) -> bool:
        return self.device <= ALLOWED * self.cpu


@dataclass(frozen=True)
class Timing:
    """The fastest round of FedAvg on digits, and the largest memory it took on CUDA."""

    engine: str
    precision: str
    seconds: float
    bytes: int | None
    graphs: bool = False


@dataclass(frozen=True)
class DeviceReport:
    device: str
    name: str
    torch: str
    agreements: list[Agreement]
    timings: list[Timing]

    @property
    def is_ok(self) -> bool:
        return all(agreement.is_ok for agreement in self.agreements)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {"ok": self.is_ok, **asdict(self)}

    def markdown(self) -> str:
        """The report as a page."""
        lines = [
            f"# {self.name} ({self.device}), torch {self.torch}",
            "",
            "Two rounds on digits: distance from the CPU in float64, as a share of the way that the parameters went.",
            "",
            "| algorithm | engine | device, float32 | CPU, float32 | agrees |",
            "|---|---|---|---|---|",
            *(
                f"| {a.algorithm} | {a.engine} | {a.device:.1e} | {a.cpu:.1e} | {'yes' if a.is_ok else 'NO'} |"
                for a in self.agreements
            ),
            "",
            "The fastest of four rounds of FedAvg, ten workers with five steps of 64.",
            "",
            "| engine | precision | graphs | milliseconds a round | MB at most |",
            "|---|---|---|---|---|",
            *(
                f"| {t.engine} | {t.precision} | {'yes' if t.graphs else 'no'} | {1000 * t.seconds:.2f} | "
                f"{'not measured' if t.bytes is None else f'{t.bytes / 1e6:.1f}'} |"
                for t in self.timings
            ),
        ]
        return "\n".join(lines) + "\n"


def examine_device(device: str, algorithms: list[str] | None = None) -> DeviceReport:
    """Run the methods (all without a list) on a device and compare; UserError for a device that is not there."""
    check_device("--device", device, "cpu")
    torch.set_num_threads(1)
    quieten_lightning()
    agreements = []
    for name in algorithms or base.names():
        exact = trained(f"algorithm.name={name}", "device=cpu", "engine=loop", "precision=float64")
        for engine in ENGINES:
            args = (f"algorithm.name={name}", f"engine={engine}")
            found, here = (distance(trained(*args, f"device={place}"), exact) for place in (device, "cpu"))
            agreements.append(Agreement(name, engine, found, here))
    timings = [timed(device, engine, precision) for engine in ENGINES for precision in PRECISIONS]
    if torch.device(device).type in CAPTURES:
        timings.append(timed(device, "stacked", "float32", graphs=True))
    title = torch.cuda.get_device_name(device) if device.startswith("cuda") else device.upper()
    return DeviceReport(device, title, torch.__version__, agreements, timings)


def trained(*arguments: str) -> FederatedModule:
    """The module of a small federation after its rounds; the size of a memory is dropped where there is none."""
    spec = resolve(compose([*SMALL, *arguments]), drop_unused=True)
    algorithm = make_algorithm(spec.config)
    module = build(spec.config, algorithm)
    attach(make_trainer(spec), [], [algorithm]).fit(module)
    return module


def distance(module: FederatedModule, exact: FederatedModule) -> float:
    """|x - exact| / |exact - x_0| of the parameters after the rounds."""
    found, target = (each.global_params.detach().cpu().double() for each in (module, exact))
    way = target - exact.network.initial_params.double()
    return float(torch.linalg.vector_norm(found - target) / torch.linalg.vector_norm(way))


def timed(device: str, engine: str, precision: str, *, graphs: bool = False) -> Timing:
    """The fastest round; the first, which allocates, is not the fastest."""
    is_cuda = device.startswith("cuda")
    if is_cuda:
        torch.cuda.reset_peak_memory_stats(device)
    module = trained(*TIMED, f"device={device}", f"engine={engine}", f"precision={precision}", f"graphs={graphs}")
    seconds = min(row[metrics.ROUND_SECONDS] for row in module.history)
    most = torch.cuda.max_memory_allocated(device) if is_cuda else None
    return Timing(engine, precision, seconds, most, graphs)
