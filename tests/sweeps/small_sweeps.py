"""Small sweeps on the built-in digits."""

from pathlib import Path
from typing import Any

import yaml

import tools.sweeps
from fl_platform.cli.sweep import forget_wandb
from fl_platform.sweeps.definition import Sweep, read_sweep
from fl_platform.sweeps.display import Display
from fl_platform.sweeps.launcher import Launcher
from fl_platform.sweeps.ledger import Entry, Ledger
from fl_platform.sweeps.pools import InProcessPool
from fl_platform.sweeps.status import Status

COMMAND = [part for part in tools.sweeps.COMMAND if not part.startswith("tracking.")]
SMALL = ["num_workers=10", "cohort_size=2", "local_steps=1", "num_rounds=2"]
QUICK = ["tracking.mode=disabled", *SMALL]


def write_sweep(path: Path, parameters: dict[str, Any], **content: Any) -> Path:
    whole = {"method": "grid", "command": COMMAND, "parameters": parameters, **content}
    path.write_text(yaml.safe_dump(whole), encoding="utf-8")
    return path


def quick_sweep(directory: Path, parameters: dict[str, Any], *args: str, **content: Any) -> Sweep:
    """A sweep of trials that take a moment, with everything it writes below the directory."""
    path = write_sweep(directory / "small.yaml", parameters, **content)
    return read_sweep(path, [*QUICK, f"output.dir={directory / 'runs'}", *args])


def launch_here(sweep: Sweep, *, retries: int = 1, cap: int | None = None) -> Status:
    """Run a sweep in this process, to its end."""
    sweep.write_copy(sweep.directory)
    with Ledger(sweep.directory) as ledger:
        ledger.launch([])
        pool = InProcessPool(forget_wandb)
        return Launcher(sweep, sweep.directory, ledger, pool, Display(), retries=retries, cap=cap).run()


def entries_of(sweep: Sweep) -> list[Entry]:
    with Ledger(sweep.directory) as ledger:
        return ledger.entries()
