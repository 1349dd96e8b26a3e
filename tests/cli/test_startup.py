"""Starting is light: help and errors come before any heavy package is imported."""

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest

from fl_platform.cli import exit_code, main
from fl_platform.cli.deferred import Deferred
from fl_platform.cli.parser import COMMANDS
from fl_platform.sweeps.definition import read_sweep
from fl_platform.sweeps.ledger import Ledger

HEAVY = (
    *("torch", "torchvision", "lightning", "wandb", "ray", "cvxpy"),
    *("pandas", "numpy", "scipy", "sklearn", "pyarrow", "matplotlib"),
)


def heavy_after(code: str) -> set[str]:
    """Heavy packages a fresh interpreter holds after running code."""
    report = f"\nimport sys; print('loaded', *[name for name in {HEAVY!r} if name in sys.modules])"
    command = [sys.executable, "-c", code + report]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(
    "module", ["fl_platform", "fl_platform.cli", "fl_platform.runs.metrics", "fl_platform.cli.checks"]
)
def test_import_is_light(module: str) -> None:
    assert heavy_after(f"import {module}") == set()


def test_the_check_for_heavy_packages_sees_them() -> None:
    assert heavy_after("import numpy") == {"numpy"}


def test_an_unknown_command_fails_light_and_in_one_sentence() -> None:
    code = "from fl_platform.cli import main; assert main(['doctr']) == 2"
    assert heavy_after(code) == set()
    done = subprocess.run([sys.executable, "-m", "fl_platform", "doctr"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "did you mean 'doctor'?" in done.stderr


NUMBERS = {"numpy", "pyarrow"}
TRAINING = {"torch", "torchvision", "lightning", "wandb", "ray", "cvxpy"}
SWEEPS = "status run stop check best restore"
READING = [  # arguments and the heavy packages that they may import, from those that need the least
    *((["list", kind], set()) for kind in ("algorithms", "datasets", "models", "policies")),
    (["config", "data.name=mnist", "algorithm.name=gradma", "preset=released"], set()),
    (["report"], set()),
    *(([command, "--help"], set()) for command in COMMANDS if command not in ("data", "figure", "why")),
    *((["sweep", action, "--help"], set()) for action in SWEEPS.split()),
    (["sweep", "status", "{sweep}"], set()),
    *(([command, "--help"], NUMBERS) for command in ("data", "why")),
    (["sweep", "check", "sweeps/variants_mnist.yaml"], NUMBERS),
    (["figure", "--help"], set(HEAVY) - TRAINING),  # it lists the arguments of the functions that draw
]
"""One process calls them one after another, so that each may import what those before it may."""


def test_what_only_reads_imports_no_more_than_it_needs(tmp_path: Path) -> None:
    main(["list", "policies"])  # writes the catalogue where a source has changed
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(Path("sweeps/variants_mnist.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    with Ledger(read_sweep(sweep, [f"output.dir={tmp_path}"]).directory) as ledger:
        ledger.propose([{"seed": 0}])
    calls = [(arguments, sorted(allowed)) for arguments, allowed in READING]
    code = f"""
import sys
from fl_platform.cli.deferred import Deferred
from fl_platform.cli import exit_code, main
for arguments, allowed in {calls!r}:
    if "{{sweep}}" in arguments:
        arguments = ["sweep", "status", {str(sweep)!r}, "output.dir={tmp_path}"]
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    found = {{name for name in {HEAVY!r} if name in sys.modules}} - set(allowed)
    assert (code, found) == (0, set()), (arguments, code, found)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


UNUSED = {"matplotlib", "pandas", "scipy", "sympy", "torch._dynamo", "torch.distributed.fsdp", "torchvision"}
"""What Lightning, torchmetrics and W&B import, or would, and a run of FedAvg does not use."""


def test_a_run_imports_what_it_uses_and_the_rest_at_its_first_use(tmp_path: Path) -> None:
    main(["list", "policies"])  # writes the catalogue where a source has changed
    code = f"""
import gc, sys
from fl_platform.cli import main
from fl_platform.cli.start import quick_imports
assert main(["run", "num_rounds=1", "output.dir={tmp_path}", "tracking.mode=offline"]) == 0
assert not {UNUSED!r} & sys.modules.keys(), {UNUSED!r} & sys.modules.keys()

assert gc.isenabled() and gc.get_freeze_count() > 100_000  # out of the collector's sight
kept = gc.get_freeze_count()
with quick_imports():
    assert gc.isenabled()
    more = [[] for _ in range(1000)]
assert gc.get_freeze_count() <= kept

import torch, torchmetrics
from lightning.fabric import wrappers
from lightning.pytorch.trainer.connectors.logger_connector.result import _ResultCollection
layer = torch.nn.Linear(1, 1)
assert wrappers._unwrap_compiled(layer) == (layer, None) and not isinstance(layer, wrappers.OptimizedModule)
metric = torchmetrics.MeanMetric()
metric.update(1.0)
figure, axes = metric.plot()
import matplotlib.axes, torch._dynamo
assert isinstance(axes, matplotlib.axes.Axes) and isinstance(axes, torchmetrics.utilities.plot._AX_TYPE)
assert isinstance(torch.compile(layer), wrappers.OptimizedModule)
assert _ResultCollection(True).metrics(True)["log"] == {{}}
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_stand_in_is_used_as_the_class_that_it_stands_for() -> None:
    deferred: Any = Deferred("decimal", lambda: Decimal)

    class Derived(deferred):
        pass

    assert issubclass(Derived, Decimal)
    assert deferred("1.5") == Derived("1.5") == Decimal("1.5")
    assert deferred.from_float(0.5) == Decimal("0.5")
    assert type(None) in get_args(deferred | None)
    assert type(None) in get_args(None | deferred)
    assert isinstance(Decimal(1), deferred)
    assert not isinstance(Decimal(1), Deferred("no_such_package", lambda: Decimal))


def test_one_thread_in_tests_and_their_children() -> None:
    code = "import torch; print(torch.get_num_threads())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_a_pipe_without_a_reader_ends_quietly_unless_it_is_another_one(capfd: pytest.CaptureFixture[str]) -> None:
    def command(args: list[str]) -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        exit_code(command, [])
    print("still there", file=sys.stderr)
    assert capfd.readouterr().err == "still there\n"
    reader, writer = os.pipe()
    os.close(reader)
    command_line = [sys.executable, "-m", "fl_platform", "list", "algorithms"]
    done = subprocess.run(command_line, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
