"""What ``plan`` estimates beside the resident memory that runs take on this CPU: ``python -m benchmarks.plan_check``.

Each run has a process of its own, which first does a tiny run of the same method, so that libraries and compiled code
are there, and then counts the largest resident size above that. Every worker takes part in every round, so that memory
and worker state are full. The C library is told to give freed blocks back at once: what it keeps for later otherwise,
some 80 MB here, depends on the order of requests and is no need of the run.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.processes import environment
from fl_platform.errors import UserError

METHODS = ("fedavg", "gradma", "gradma_w")
MODELS = {
    "mlp": ("data.name=random_mnist", "num_workers=50", "cohort_size=50", "batch_size=64", "engine=stacked"),
    "lenet5": ("num_workers=20", "cohort_size=20", "batch_size=64", "engine=loop"),
    "vgg11": ("num_workers=4", "cohort_size=4", "batch_size=16", "engine=loop"),
    "resnet20": ("num_workers=4", "cohort_size=4", "batch_size=32", "engine=stacked"),
}
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_TOP_PAD_": "0"}
"""For glibc: larger blocks come from the system and go back to it, whatever was freed before."""
RUN = (
    "plugins=[benchmarks.synthetic]", "data.name=random_cifar10_small", "data.partition=iid", "num_rounds=2",
    "local_steps=3", "evaluation.every=2", "threads=1", "device=cpu", "tracking.mode=disabled",
    "trainer.enable_progress_bar=false",
)  # fmt: skip

PROGRAM = """
import ctypes, gc, json, sys
import torch
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.federation.build import build, make_algorithm
from fl_platform.federation.trainer import attach, make_trainer, quieten_lightning
from fl_platform.federation.plan import needs_of

def bytes_of(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))

def run(args):
    spec = resolve(compose(args), drop_unused=True)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = bytes_of("VmRSS")
    algorithm = make_algorithm(spec.config)
    module = build(spec.config, algorithm)
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")  # the largest size is counted from here on, without what making random data takes
    attach(make_trainer(spec), [], [algorithm]).fit(module)
    return bytes_of("VmHWM") - before, spec

torch.set_num_threads(1)
quieten_lightning()
args = sys.argv[1:]
run([*args, "cohort_size=1", "local_steps=2", "batch_size=2", "num_rounds=1"])
found, spec = run(args)
needs = needs_of(spec.config)
print(json.dumps([needs.total(), found]))
"""


@dataclass(frozen=True)
class Checked:
    """An estimate and what was measured, in bytes."""

    method: str
    model: str
    estimated: int
    measured: int

    @property
    def ratio(self) -> float:
        return self.estimated / self.measured


def check(method: str, model: str, *more: str) -> Checked:
    """Run one method in a process of its own; raises UserError where that fails."""
    args = [*RUN, f"algorithm.name={method}", f"model.name={model}", *MODELS[model], *more]
    command = [sys.executable, "-c", PROGRAM, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment() | GIVES_BACK)
    if done.returncode:
        raise UserError(f"a run for the benchmark failed: {' '.join(done.stderr.split())[-300:]}")
    return Checked(method, model, *json.loads(done.stdout.splitlines()[-1]))


def checks(models: list[str]) -> Iterator[Checked]:
    """Every method on the models, or on all."""
    for model in models or MODELS:
        for method in METHODS:
            yield check(method, model)


def main() -> None:
    print(f"{'method':10} {'model':8} {'estimated MB':>13} {'measured MB':>12} {'ratio':>6}")
    for found in checks(sys.argv[1:]):
        sizes = f"{found.estimated / 1e6:13.1f} {found.measured / 1e6:12.1f}"
        print(f"{found.method:10} {found.model:8} {sizes} {found.ratio:6.2f}", flush=True)


if __name__ == "__main__":
    main()
