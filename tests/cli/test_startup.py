"""Starting is light: help and errors come before any heavy package is imported."""

import subprocess
import sys

import pytest

from fl_platform.cli import main

HEAVY = ("torch", "torchvision", "lightning", "wandb", "pandas", "numpy", "matplotlib", "ray", "cvxpy")


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


READING = (
    ["list", "algorithms"],
    ["list", "datasets"],
    ["list", "models"],
    ["list", "policies"],
    ["config", "data.name=mnist", "algorithm.name=gradma", "preset=released"],
    ["sweep", "check", "sweeps/variants_mnist.yaml"],
    ["report"],
)


def test_what_only_reads_a_configuration_imports_no_torch() -> None:
    main(["list", "policies"])  # writes the catalogue where a source has changed
    calls = "; ".join(f"assert main({arguments!r}) == 0" for arguments in READING)
    assert heavy_after(f"from fl_platform.cli import main; {calls}") & {"torch", "lightning", "wandb"} == set()


@pytest.mark.parametrize("arguments", [["list", "algorithms"], ["config"], ["report"], ["report", "--help"]])
def test_listings_need_no_numbers_either(arguments: list[str]) -> None:
    main(["list", "policies"])
    code = f"from fl_platform.cli import main\ntry: main({arguments!r})\nexcept SystemExit: pass"
    assert heavy_after(code) == set()


def test_one_thread_in_tests_and_their_children() -> None:
    code = "import torch; print(torch.get_num_threads())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
