"""``run``: one federated run, fresh or resumed."""

import os
import shlex
import sys
from pathlib import Path

from fl_platform.cli.start import quick_imports
from fl_platform.config.arguments import RunArguments, parse_run
from fl_platform.config.compose import parse_arguments
from fl_platform.config.resolve import RunSpec, spec_of
from fl_platform.config.schema import shown, to_dict
from fl_platform.errors import UserError


def main(arguments: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    args = parse_run(arguments)
    spec, checkpoint = (spec_of(args), None) if args.resume is None else resumed(args, args.resume)

    if sys.stderr.isatty() and not is_other_rank():
        print(f"run {spec.run_id}: {spec.title}, T={spec.config.num_rounds}", file=sys.stderr, flush=True)
    with quick_imports():
        if spec.config.tracking.mode != "disabled":
            import wandb.apis.public  # noqa: F401  a run of W&B imports it: before torch that takes a fifth of the time

        from fl_platform.federation.api import newest_checkpoint, stored_result
        from fl_platform.federation.launch import launch, say
        from fl_platform.federation.trainer import is_first_rank
    from fl_platform.runs.directory import check_writable, json_text
    from fl_platform.runs.status import RunStatus
    from fl_platform.runs.writing import write_atomically

    if args.json:
        check_writable(args.json.parent, f"--json {args.json}")
        if args.json.is_dir():
            raise UserError(f"--json {args.json} is a directory; give a file")
    result = stored_result(spec) if args.skip_finished else None
    if result is not None:
        say(f"run {spec.run_id} is finished already")
    else:
        unfinished = None if args.resume else newest_checkpoint(spec)
        if args.go_on and unfinished:
            checkpoint = unfinished
        elif unfinished:
            say(f"an unfinished attempt exists; to continue it instead: {resume_command(spec)}")
        result = launch(spec, checkpoint)
        if not is_first_rank():
            return result.exit_code
    if result.wandb_directory is not None:
        say(f"W&B directory: {result.wandb_directory}")
    if result.status is RunStatus.INTERRUPTED:
        say(f"to resume: {resume_command(spec)}")
    if args.json:
        write_atomically(args.json, json_text(result.summary, indent=1) + "\n")
    print_last(result.last_line())
    return result.exit_code


def print_last(line: str) -> None:
    """Print the last line of a run; where code of the user's closed the standard output, say so on the other."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        print(f"fl_platform: the standard output was closed ({error}); it would say: {line}", file=sys.stderr)
        sys.stdout = None  # or Python would try once more to write what is left


def is_other_rank() -> bool:
    """Whether this process was started by another one to share its run, as far as can be told without torch."""
    return any(os.environ.get(name, "0") != "0" for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"))


def resume_command(spec: RunSpec) -> str:
    """The command that continues a run, with the arguments that name code of the user's."""
    from fl_platform.federation.named_code import code_arguments

    code = code_arguments(to_dict(spec.config))
    keys = [f"{key}={shown(value)}" for key, value in code.items()]
    command = ["python", "-m", "fl_platform", "run", "--resume", spec.run_id, *keys, f"output.dir={spec.output}"]
    return shlex.join(command)


def resumed(args: RunArguments, target: str) -> tuple[RunSpec, Path]:
    """Return the run and checkpoint to go on with; UserError where there is none, or for keys that cannot change."""
    from fl_platform.federation import resume

    if args.config:
        raise UserError(
            f"--resume with --config {args.config[0]}: the checkpoint holds its configuration; leave --config out"
        )
    return resume.resumed(target, parse_arguments(args.keys))
