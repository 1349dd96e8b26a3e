"""From a proposal to a trial: its command and its run; and how a trial ended."""

import contextlib
import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fl_platform.config.compose import LONGEST_TAG
from fl_platform.config.regular_files import open_regular
from fl_platform.config.resolve import RunSpec, spec_as_given, spec_of
from fl_platform.errors import DiskFull, UserError, visible
from fl_platform.runs import metrics
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.liveness import FILE as PROCESS_FILE
from fl_platform.runs.liveness import crash_ending, is_held, recorded_end
from fl_platform.runs.status import Ending, RunStatus
from fl_platform.runs.writing import write_atomically
from fl_platform.sweeps.commands import expand, run_arguments
from fl_platform.sweeps.definition import Sweep
from fl_platform.sweeps.states import TrialState

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@dataclass(frozen=True)
class Trial:
    """One point of a sweep, ready to run."""

    number: int
    params: dict[str, Any]
    command: list[str]
    spec: RunSpec
    skip_finished: bool
    notices: tuple[str, ...]
    directory: Path
    label: str  # the values that differ between trials

    @property
    def files(self) -> RunDirectory:
        """The directory of its run."""
        return RunDirectory(self.spec.output, self.spec.run_id)

    @property
    def place(self) -> tuple[str | None, str]:
        """(scenario, algorithm): what a point of a tuning sweep competes within."""
        return self.spec.config.scenario, self.spec.algorithm

    @property
    def log(self) -> Path:
        """The file that has what its process prints."""
        return self.directory / "logs" / f"{self.number:05d}-{self.spec.run_id}.log"


def make_trial(
    sweep: Sweep, directory: Path, number: int, params: dict[str, Any], *, imports_plugins: bool = True
) -> Trial:
    """Return the trial of a proposal; its configuration is resolved here exactly as ``run`` will resolve it.

    Without ``imports_plugins`` one that names plugins is taken as it is given, and has another run id.
    Raises UserError for a proposal that is not one of the sweep, and for one that ``run`` would refuse.
    """
    check_proposal(sweep, params)
    json_file = directory / "params" / f"{number:05d}.json"
    program = str(sweep.config.get("program", ""))
    command = [*expand(sweep.command, params, program=program, json_file=str(json_file)), *launch_arguments(sweep)]
    arguments = run_arguments(command)
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        spec = spec_of(arguments) if imports_plugins else spec_as_given(arguments)
    notices = tuple(printed.getvalue().splitlines())
    varied = {key: value for key, value in params.items() if "value" not in sweep.parameters.get(key, {})}
    label = " ".join(str(value) if key == "point" else f"{key}={value}" for key, value in varied.items())
    return Trial(number, params, command, spec, arguments.skip_finished, notices, directory, label)


def check_proposal(sweep: Sweep, params: dict[str, Any]) -> None:
    """Raise UserError for values that the YAML does not have: a ledger is data and adds no keys, names or code."""
    for key, value in params.items():
        spec = sweep.parameters.get(key)
        listed = None if spec is None else spec.get("values", [spec["value"]] if "value" in spec else None)
        if spec is None or (listed is not None and value not in listed):
            raise UserError(f"{key}={value} of the ledger is not a value of the sweep {sweep.source}")


def launch_arguments(sweep: Sweep) -> list[str]:
    """The arguments a launch adds to the command of every trial, where they come last and win.

    Unless the launch gives these keys itself, tracking is offline and a tag names the sweep.
    """
    given = {argument.partition("=")[0] for argument in sweep.trial_arguments}
    own = {"tracking.mode": "offline", "tracking.tags": f"[{sweep_tag(sweep.name)}]"}
    return [*(f"{key}={value}" for key, value in own.items() if key not in given), *sweep.trial_arguments]


def sweep_tag(name: str) -> str:
    """The tag of a sweep's runs: its name, cut and ended by a hash where W&B would refuse it for its length."""
    tag = f"sweep:{name}"
    if len(tag) <= LONGEST_TAG:
        return tag
    ending = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{tag[: LONGEST_TAG - len(ending) - 1]}-{ending}"


def environment(sweep: Sweep, trial: Trial) -> dict[str, str]:
    """Write the files of a trial's parameters, and return the variables that its process gets.

    They are those ``wandb agent`` gives a run, which name the files, and the number of threads.
    """
    path = trial.directory / "params" / f"{trial.number:05d}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path.with_suffix(".json"), json.dumps(trial.params))
    write_atomically(
        path, yaml.safe_dump({"wandb_version": 1, **{key: {"value": value} for key, value in trial.params.items()}})
    )
    tracking = trial.spec.config.tracking
    return {
        "WANDB_SWEEP_ID": sweep.identifier,
        "WANDB_RUN_ID": trial.spec.run_id,
        "WANDB_PROJECT": tracking.project,  # within a sweep W&B takes neither these nor the id from the program
        **({"WANDB_ENTITY": tracking.entity} if tracking.entity else {}),
        "WANDB_SWEEP_PARAM_PATH": str(path.resolve()),
        **dict.fromkeys(THREAD_VARIABLES, str(trial.spec.config.threads)),
    }


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: a state of the ledger, its summary, what went wrong, and how its run ended."""

    state: TrialState
    summary: dict[str, Any]
    message: str = ""
    ending: Ending | None = None

    @property
    def is_disk_full(self) -> bool:
        """Whether every other trial would meet the same."""
        return self.ending is Ending.DISK_FULL


def judge(
    trial: Trial,
    exit_code: int | None,
    last_row: dict[str, Any],
    *,
    asked_to_stop: TrialState | None,
    was_at_work: bool = False,
) -> Outcome:
    """Return the outcome of a trial from its exit code and ``result.json``.

    ``exit_code`` is None for a trial that was lost with its machine, which is no failure of the trial.
    ``asked_to_stop`` is the state of a trial that was asked to stop, else None. ``was_at_work`` says that another
    process held its run when it was started: that one may have ended after it made this one end.
    """
    result = trial.files.result()
    summary = {**scalars(last_row), **(result or {})}
    if exit_code is None:
        exit_code = RunStatus.INTERRUPTED.exit_code
    ending = RunStatus.of_exit_code(exit_code)
    if ending.has_ended and result and result.get(metrics.STATUS) == ending:
        return Outcome(TrialState(ending), summary)
    summary = {**scalars(last_row), metrics.ROUNDS: last_row.get(metrics.ROUND, 0)}
    if asked_to_stop:
        return Outcome(asked_to_stop, {**summary, metrics.STATUS: asked_to_stop.value})
    if ending is RunStatus.INTERRUPTED:
        return Outcome(TrialState.INTERRUPTED, summary)
    if exit_code == DiskFull.exit_code:  # no failure of the trial: it goes on once there is space
        return Outcome(TrialState.INTERRUPTED, summary, f"{Ending.DISK_FULL} (log: {trial.log})", Ending.DISK_FULL)
    if exit_code == UserError.exit_code and (
        was_at_work or is_at_work(trial)
    ):  # on a host that was cut off: it goes on there
        return Outcome(TrialState.INTERRUPTED, summary, f"another process is at work on it (log: {trial.log})")
    printed = last_line(trial.log)
    what = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    if ending.has_ended:
        what += f" without the result {trial.files.result_file}"
    how = crash_of(trial, exit_code)
    return Outcome(TrialState.FAILED, summary, f"{how} ({what}): {printed or 'no output'} (log: {trial.log})", how)


def is_at_work(trial: Trial) -> bool:
    """Whether a process holds the newest attempt of a trial."""
    attempt = trial.files.newest_attempt()
    return attempt is not None and bool(is_held(attempt / PROCESS_FILE))


def crash_of(trial: Trial, exit_code: int) -> Ending:
    """How the run of a failed trial ended: as its attempt noted, else killed where a signal ended its process."""
    attempt = trial.files.newest_attempt()
    if attempt is not None and recorded_end(attempt) is RunStatus.CRASHED:
        return crash_ending(attempt)
    return Ending.KILLED if exit_code < 0 else Ending.CRASHED


def stored_outcome(trial: Trial) -> Outcome | None:
    """Return the result an equal configuration left earlier, where the command says ``--skip-finished``, else None."""
    result = trial.files.result() if trial.skip_finished else None
    status = RunStatus.parse(result.get(metrics.STATUS)) if result else None
    return Outcome(TrialState(status), result) if result and status and status.has_ended else None


def scalars(row: dict[str, Any]) -> dict[str, Any]:
    """The numbers and texts of a row."""
    return {key: value for key, value in row.items() if isinstance(value, int | float | str)}


def last_line(log: Path) -> str:
    """The last line a trial printed, from the end of its log."""
    try:
        with open_regular(log) as file:
            file.seek(max(0, log.stat().st_size - 2000))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return visible(next((line.strip() for line in reversed(lines) if line.strip()), ""))
