"""``fl_platform.run``: one federated run from Python."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fl_platform.config.compose import from_given, parse_mapping
from fl_platform.config.resolve import RunSpec, resolve
from fl_platform.config.short_forms import keys_of
from fl_platform.errors import UserError
from fl_platform.federation.launch import launch
from fl_platform.federation.named_code import trust
from fl_platform.federation.result import SHOWN, Result
from fl_platform.federation.resume import resumed
from fl_platform.runs import metrics
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.status import RunStatus


def run(
    config: Mapping[str, Any] | None = None,
    /,
    *,
    resume: "str | os.PathLike[str] | None" = None,
    reuse: bool = False,
    progress: bool = True,
    **keys: Any,
) -> Result:
    """Carry out one federated run and return how it ended.

    Keys of the configuration are given as keyword arguments, or by their dotted names in ``config``, nested or not:
    ``run({"algorithm.mu": 0.1}, data="mnist", omega=0.1, algorithm="fedprox", num_rounds=50)``. Short forms: ``data``,
    ``algorithm`` and ``model`` given as text or as a class are the names of these, an algorithm with arguments is its
    name and fields, ``omega`` is ``data.dirichlet_omega``.

    ``resume`` goes on with a run: its id below ``output.dir``, its directory or a checkpoint; with a larger
    ``num_rounds`` it becomes that longer run. ``reuse`` returns the stored result of an equal run that has finished,
    and goes on with one that was interrupted, instead of running it again. ``progress=False`` shows no progress bar.

    Raises UserError for bad input. Ctrl-C ends the run after its round, with status "interrupted" and a checkpoint to
    resume from; the second one raises KeyboardInterrupt.
    """
    values = keys_of(config, keys)
    if not progress:
        values["trainer.enable_progress_bar"] = False
    given = parse_mapping(values, "run")
    if resume is not None and reuse:
        raise UserError("run: resume and reuse do not go together; resume names the run, reuse looks for it")
    if resume is not None:
        return launch(*resumed(os.fspath(resume), given))
    spec = resolve(from_given(given))
    return stored_result(spec) or launch(spec, newest_checkpoint(spec)) if reuse else launch(spec)


def stored_result(spec: RunSpec) -> Result | None:
    """The result of an equal run that has finished, or None."""
    files = RunDirectory(spec.output, spec.run_id)
    stored = files.result()
    if stored is None or stored[metrics.STATUS] != RunStatus.FINISHED or not stored.keys() >= SHOWN:
        return None
    trust(spec.config)
    return Result(stored, files.path)


def newest_checkpoint(spec: RunSpec) -> Path | None:
    """Where an equal run that has no result yet can go on from, or None."""
    files = RunDirectory(spec.output, spec.run_id)
    return files.newest_checkpoint() if files.result() is None else None
