"""Every test runs offline, on one thread, and keeps W&B and matplotlib out of the home directory."""

import atexit
import functools
import gc
import importlib.metadata
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

import fl_platform  # noqa: F401  first: with it torchvision and lightning import everywhere

ROOT = Path(__file__).resolve().parent.parent

scratch = tempfile.TemporaryDirectory(prefix="fl_platform-tests-", ignore_cleanup_errors=True)
atexit.register(scratch.cleanup)

for name in [name for name in os.environ if name.startswith("WANDB_")]:
    del os.environ[name]  # neither the user's account nor a surrounding run may reach a test

os.environ.update(
    {
        "OMP_NUM_THREADS": "1",  # read when torch is first imported, here and in child processes
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": str(ROOT / "build" / "cache" / "matplotlib"),  # a list of fonts takes seconds to make
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "RAY_USAGE_STATS_ENABLED": "0",
        "WANDB_CACHE_DIR": scratch.name,
        "WANDB_CONFIG_DIR": scratch.name,
        "WANDB_DATA_DIR": scratch.name,
        "WANDB_DIR": scratch.name,
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
    }
)

# A Trainer looks through the metadata of all installed packages, which do not change: a third of a run of one round.
importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)

hypothesis.settings.register_profile("fl_platform", deadline=None, max_examples=50, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("fl_platform")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torture", action="store_true", help="as many kills, faults and broken files as are promised")


def pytest_collection_finish() -> None:
    """Leave what was imported out of later garbage collections, which would look through a million objects each."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """``scale(few, many)``: how often to try; few in every test run, many with ``--torture``."""
    return lambda few, many: many if request.config.getoption("--torture") else few


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The figures that tests noted with ``record_property``, below the results of ``--torture``."""
    if not terminalreporter.config.getoption("--torture"):
        return
    terminalreporter.section("figures")
    for report in [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]:
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
