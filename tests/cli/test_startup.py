"""Starting is light: help and errors come before any heavy package is imported."""

import subprocess
import sys

import pytest

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


def test_one_thread_in_tests_and_their_children() -> None:
    code = "import torch; print(torch.get_num_threads())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
