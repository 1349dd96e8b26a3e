"""Carrying out a sweep: for the command ``sweep run`` and, as ``fl_platform.sweep``, from Python."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_platform.config.registry import REGISTRIES
from fl_platform.config.short_forms import assignment, keys_of
from fl_platform.errors import UserError
from fl_platform.sweeps.check import content_problems, schema_problems
from fl_platform.sweeps.copies import CopyPool
from fl_platform.sweeps.definition import Sweep, make_sweep, read_sweep
from fl_platform.sweeps.display import make_display
from fl_platform.sweeps.launcher import Launcher
from fl_platform.sweeps.ledger import Ledger
from fl_platform.sweeps.pools import ExtraLaunchers, InProcessPool, Pool, ProcessPool, cores, visible_gpus
from fl_platform.sweeps.status import LEFT, Status

if TYPE_CHECKING:
    from fl_platform.runs import frames


@dataclass(frozen=True)
class LaunchOptions:
    """How a sweep is carried out; ``forget_wandb`` is given for trials inside this process, and needed there.

    ``jobs`` trials at the same time, on each GPU where there are any; None: one per GPU, else one per core. ``cap`` is
    the most trials, ``retries`` how often a failed one is tried again. ``fresh`` starts an interpreter for every trial
    where it could be a copy of one. ``engine`` is local or ray, and the rest concerns ray.
    """

    jobs: int | None = None
    cap: int | None = None
    retries: int = 1
    forget_wandb: Callable[[], None] | None = None
    fresh: bool = False
    engine: str = "local"
    address: str | None = None
    cpus_per_trial: float = 1.0
    gpus_per_trial: float = 0.0


@dataclass(frozen=True, repr=False)
class SweepResult:
    """How a sweep ended: its directory, how many trials it has of each state, and the failed and best ones.

    ``output`` is where its runs lie; a ``SweepResult`` can be given wherever a path to runs is expected.
    """

    directory: Path
    output: Path
    status: Status
    is_stopped: bool
    run_ids: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<SweepResult: {self.status.line()}; {self.directory}>"

    def __fspath__(self) -> str:
        return str(self.output)

    @property
    def is_interrupted(self) -> bool:
        """Whether it ended with trials left; the same call continues it."""
        return self.status.counts[LEFT] > 0

    def runs(self) -> "frames.Runs":
        """Return the runs of this sweep as frames; other runs in the same directory are left out."""
        from fl_platform.runs import frames

        found = frames.load(self.output)
        return found.only(found.runs["run_id"].isin(self.run_ids))


def sweep(
    definition: "str | os.PathLike[str] | Mapping[str, Any]",
    config: Mapping[str, Any] | None = None,
    /,
    *,
    jobs: int | None = None,
    cap: int | None = None,
    retries: int = 1,
    **keys: Any,
) -> SweepResult:
    """Carry out a sweep, or go on with it, and return how it ended.

    ``definition`` is the path of a W&B sweep YAML, or its content; of the content ``method`` may be left out, which
    is then grid, and ``command``, which is then ``run --skip-finished --continue --drop-unused``. ``config`` and
    further keyword arguments are keys as for ``run``: they override every trial, and a list for a swept key keeps only
    those of its values. Trials run in ``jobs`` processes, by default one per GPU or core; ``cap`` is the most trials,
    ``retries`` how often a failed one is tried again.

    Raises UserError for a definition or keys that are not allowed, before anything is started.
    """
    args = [assignment(key, value) for key, value in keys_of(config, keys).items()]
    if isinstance(definition, Mapping):
        found = make_sweep(dict(definition), args)
    elif not isinstance(definition, str | os.PathLike):
        raise UserError(f"sweep: {definition!r} is neither the path of a YAML nor a mapping with its content")
    else:
        found = read_sweep(Path(definition), args)
    for name, number, least in (("jobs", jobs, 1), ("cap", cap, 1), ("retries", retries, 0)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < least):
            raise UserError(f"sweep: {name}={number} is not allowed; it must be a whole number >= {least}")
    refuse_own_names(found)
    return carry_out(found, LaunchOptions(jobs=jobs, cap=cap, retries=retries))


def refuse_own_names(sweep: Sweep) -> None:
    """Raise ``UserError`` for what the trials name and only this process knows: they run in processes of their own."""
    for registry in REGISTRIES:
        for name in sweep.given(registry.key):
            if registry.is_of_this_process(name) or name.startswith("__main__."):
                raise UserError(
                    f"sweep: {registry.key}={name} is defined in this script or notebook, and trials run in processes "
                    "of their own; write it to a file such as my_code.py and give plugins=['my_code']"
                )


def refuse_problems(sweep: Sweep) -> None:
    """Raise ``UserError`` with the first problem of a sweep, if it has any."""
    for problem in [*schema_problems(sweep), *content_problems(sweep)]:
        raise UserError(f"{sweep.source}: {problem}")


def carry_out(sweep: Sweep, options: LaunchOptions) -> SweepResult:
    """Run the trials of a sweep to their end, or until someone stops it; UserError for a sweep with problems."""
    refuse_problems(sweep)
    sweep.write_copy(sweep.directory)
    with Ledger(sweep.directory) as ledger:
        is_stopped, status = _launch(sweep, ledger, options)
        run_ids = tuple(entry.run_id for entry in ledger.entries() if entry.run_id)
    return SweepResult(sweep.directory, sweep.output, status, is_stopped, run_ids)


def _launch(sweep: Sweep, ledger: Ledger, options: LaunchOptions) -> tuple[bool, Status]:
    """Run the trials; returns whether the sweep was stopped, and its status."""
    overrides = list(sweep.overrides)
    pool = _make_pool(options, ledger.launch(overrides), sweep.directory / "logs")
    display = make_display()
    extra = None
    is_stopped = True
    try:
        launcher = Launcher(sweep, sweep.directory, ledger, pool, display, retries=options.retries, cap=options.cap)
        display.say(f"sweep {sweep.identifier}: {launcher.at_most} trials, {sweep.directory}")
        if options.forget_wandb and (options.jobs or 1) > 1:
            limits = ["--retries", str(options.retries), *(["--cap", str(options.cap)] if options.cap else [])]
            arguments = [str(sweep.source), *overrides, *limits]
            extra = ExtraLaunchers((options.jobs or 1) - 1, arguments, sweep.directory)
            launcher.partners = extra.names
        launcher.run()
        is_stopped = launcher.stopping
    finally:
        pool.close()
        if extra is not None:
            extra.end(stop=is_stopped)
        display.close()
    return is_stopped, launcher.status()


def _make_pool(options: LaunchOptions, lock: int, logs: Path) -> Pool:
    """The pool that the options ask for; ``lock`` is the descriptor its processes inherit."""
    if options.forget_wandb:
        return InProcessPool(options.forget_wandb)
    if options.engine == "ray":
        from fl_platform.sweeps.ray_pool import RayPool

        return RayPool(options.address, options.cpus_per_trial, options.gpus_per_trial, options.jobs)
    gpus = visible_gpus()
    size = (options.jobs or 1) * len(gpus) if gpus else options.jobs or cores()
    if options.fresh or gpus or sys.platform != "linux":  # a GPU's driver does not survive being copied
        return ProcessPool(size, gpus, lock)
    return CopyPool(size, lock, logs)
