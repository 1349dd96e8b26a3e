"""Checks of this machine for federated runs: packages, devices, tracking, data sets, output directory.

Packages are checked by importing them. Nothing here uses the network or reveals a key.
"""

import importlib
import importlib.metadata
import os
import platform
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fl_platform import _torchvision

OK, MISSING, BROKEN = "ok", "missing", "broken"
"""``missing`` limits what can be run; ``broken`` means that nothing runs as configured."""

REINSTALL = "run `make setup`, or pip install -c constraints.txt -r requirements.txt"
REQUIRED = (
    *(
        "yaml",
        "omegaconf",
        "rich",
        "tqdm",
        "platformdirs",
        "numpy",
        "scipy",
        "numba",
        "llvmlite",
        "sklearn",
        "pandas",
        "pyarrow",
        "matplotlib",
    ),
    *("lightning", "wandb", "sweeps"),
)
DISTRIBUTIONS = {"yaml": "PyYAML", "sklearn": "scikit-learn"}
"""Modules whose distribution has another name."""

OPTIONAL = {
    "cvxpylayers.torch": f"algorithm.qp.solver=cvxpylayers needs it; {REINSTALL}",
    "clarabel": f"algorithm.qp.solver=clarabel needs it; {REINSTALL}",
    "ray": "sweeps spread over machines need it; pip install -c constraints.txt ray",
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Finding:
    """One line of the report; ``advice`` says what to do unless the status is ok."""

    part: str
    status: str
    detail: str
    advice: str = ""


def examine(keys: list[str]) -> Iterator[Finding]:
    """Yield every finding in the order of the report: the machine, then what a configuration of ``keys`` needs."""
    yield Finding("python", OK, f"{platform.python_version()} on {platform.platform(terse=True)}")
    yield Finding("machine", OK, f"{platform.machine()}, {num_cores()} cores, {memory_gib():.1f} GiB of memory")
    yield torch_finding()
    yield torchvision_finding()
    for module in REQUIRED:
        yield import_finding(module, BROKEN, REINSTALL)
    for module, advice in OPTIONAL.items():
        yield import_finding(module, MISSING, advice)
    if import_failure("llvmlite.binding") is None:
        yield kernels_finding()
    yield browser_finding()
    if import_failure("fl_platform.config.compose") is None:  # else a package above is broken and says so
        yield from configured_findings(keys)


def kernels_finding() -> Finding:
    """Say what local training is compiled for."""
    from llvmlite.binding import get_host_cpu_name

    from fl_platform.kernels import machine_code

    processor = get_host_cpu_name()
    if machine_code.LANES < 8:
        return Finding("kernels", OK, f"{processor} has no AVX2: perceptrons are trained by autograd")
    vectors = {16: "AVX-512", 8: "AVX2"}[machine_code.LANES]
    return Finding("kernels", OK, f"perceptrons are trained by code compiled for {processor} with {vectors}")


def configured_findings(keys: list[str]) -> Iterator[Finding]:
    """Yield the findings that depend on the configuration; raises ``UserError`` if it is not valid."""
    from fl_platform.config.compose import compose

    config = compose(keys)
    yield Finding("threads", OK, f"threads={config.threads} of {num_cores()} cores")
    yield tracking_finding(config.tracking.mode)
    yield from data_findings(config.data.root)
    yield output_finding(Path(config.output.dir))


def num_cores() -> int:
    """Number of cores this process may use; a container or scheduler can allow fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_gib() -> float:
    """Memory of this machine in GiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def import_failure(module: str) -> str | None:
    """Import a module; returns why it cannot be imported, on one line, or None."""
    try:
        with warnings.catch_warnings():  # warnings of a package say nothing about this machine
            warnings.simplefilter("ignore")
            importlib.import_module(module)
    except Exception as error:  # noqa: BLE001  a damaged package can fail in any way
        return f"cannot be imported: {type(error).__name__}: {' '.join(str(error).split())}"
    return None


def import_finding(module: str, otherwise: str, advice: str) -> Finding:
    """Check that a package is installed and can be imported; a failure has the status ``otherwise``."""
    name = module.partition(".")[0]
    try:
        version = importlib.metadata.version(DISTRIBUTIONS.get(name, name))
    except importlib.metadata.PackageNotFoundError:  # checked first: any folder of that name could be imported
        return Finding(name, otherwise, "is not installed", advice)
    if failure := import_failure(module):
        return Finding(name, otherwise, failure, advice)
    return Finding(name, OK, version)


def torch_finding() -> Finding:
    """Check torch and list its CUDA devices."""
    if failure := import_failure("torch"):
        return Finding("torch", BROKEN, failure, REINSTALL)
    import torch

    built = f"{torch.__version__}, built for {'CUDA ' + torch.version.cuda if torch.version.cuda else 'the CPU'}"
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Finding("torch", OK, f"{built}; {', '.join(devices) or 'no CUDA device'}")


def torchvision_finding() -> Finding:
    """Check torchvision, with or without its compiled operators."""
    finding = import_finding("torchvision", BROKEN, REINSTALL)
    if finding.status == OK and _torchvision.is_operator_missing():
        return replace(finding, detail=f"{finding.detail} without its compiled operators, which no run uses")
    return finding


def browser_finding() -> Finding:
    """Look for a browser."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found:
        return Finding("chromium", OK, found)
    return Finding("chromium", MISSING, "no browser found", "only browser tests need it; install the package chromium")


def tracking_finding(mode: str) -> Finding:
    """Check that W&B can be used in this tracking mode."""
    if import_failure("wandb"):
        return Finding("tracking", BROKEN, f"tracking.mode={mode} without wandb", REINSTALL)
    if has_wandb_key():
        return Finding("tracking", OK, f"tracking.mode={mode}; logged in to W&B")
    if mode == "online":
        advice = "run `wandb login`, or use tracking.mode=offline"
        return Finding("tracking", BROKEN, "tracking.mode=online, but not logged in to W&B", advice)
    return Finding("tracking", OK, f"tracking.mode={mode}; not logged in to W&B, which only online and sync need")


def has_wandb_key() -> bool:
    """Whether W&B would find credentials of a valid form; asks no server and starts no service."""
    from wandb.errors import AuthenticationError
    from wandb.sdk.lib import wbauth
    from wandb.sdk.wandb_setup import singleton

    if os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    settings = singleton().settings
    try:
        key = os.environ.get("WANDB_API_KEY") or wbauth.read_netrc_auth(host=settings.base_url) or settings.api_key
    except AuthenticationError:
        return False
    return bool(key) and wbauth.check_api_key(str(key)) is None


def data_findings(root: str | None) -> Iterator[Finding]:
    """Yield one finding per registered data set: where it is, or how to get it."""
    if failure := import_failure("fl_platform.data.datasets"):
        yield Finding("data", BROKEN, failure, REINSTALL)
        return
    from fl_platform.data import datasets, locations

    for name in datasets.names():
        if not datasets.get(name).folders:
            yield Finding(f"data {name}", OK, "needs no files")
        elif folder := datasets.find(name, root):
            yield Finding(f"data {name}", OK, str(folder))
        else:
            looked = ", ".join(map(str, locations.roots(root)))
            yield Finding(f"data {name}", MISSING, f"not in {looked}", f"run `{datasets.get_command(name)}`")


def output_finding(folder: Path) -> Finding:
    """Check that runs can be written, in the nearest folder that exists, so that nothing is left behind."""
    place = folder.absolute()
    while not os.path.exists(place):  # unlike Path.exists, False where access is denied
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            free = shutil.disk_usage(place).free / 2**30
    except OSError as error:
        return Finding("output", BROKEN, f"{folder} cannot be written: {error.strerror}", "give another output.dir")
    return Finding("output", OK, f"{folder.absolute()} is writable, {free:.1f} GiB free")
