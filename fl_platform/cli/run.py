"""``run``: one federated run, fresh or resumed."""

import argparse
import shlex
from pathlib import Path

from omegaconf import OmegaConf

from fl_platform.cli.parser import Parser
from fl_platform.config.compose import compose, from_given, parse_mapping, parse_words
from fl_platform.config.schema import Config
from fl_platform.errors import UserError


def main(words: list[str]) -> int:
    parser = Parser(
        prog="fl_platform run",
        description="One federated run. Keys are listed by `fl_platform config`.",
        epilog="example: fl_platform run data.name=mnist algorithm.name=fedprox algorithm.mu=0.1 num_rounds=50",
    )
    parser.add_argument("keys", nargs="*", metavar="key=value", help="what to change from the defaults")
    parser.add_argument(
        "--config", action="append", type=Path, default=[], metavar="FILE", help="YAML of keys; may repeat"
    )
    parser.add_argument(
        "--resume", metavar="RUN_ID_OR_PATH", help="continue from a run's newest checkpoint, or from this one"
    )
    parser.add_argument(
        "--continue", dest="go_on", action="store_true", help="go on from the newest checkpoint, if any"
    )
    parser.add_argument("--skip-finished", action="store_true", help="return the stored result of a finished run")
    parser.add_argument(
        "--drop-unused",
        action="store_true",
        help="drop algorithm.<field> keys that only other algorithms have, as a sweep over algorithms needs",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary there")
    args = parser.parse_intermixed_args(without_hyphens(words, parser))

    if args.resume is None:
        config, checkpoint = compose(args.keys, args.config), None
    elif args.config:
        raise UserError(
            f"--resume with --config {args.config[0]}: the checkpoint holds its configuration; leave --config out"
        )
    else:
        config, checkpoint = from_checkpoint(args.resume, args.keys)

    from fl_platform.federation.experiment import resolve, run_id
    from fl_platform.federation.launch import Result, is_first_rank, launch, say
    from fl_platform.runs import metrics
    from fl_platform.runs.directory import RunDirectory, check_writable, json_text
    from fl_platform.runs.status import RunStatus
    from fl_platform.runs.writing import write_atomically

    if args.json:
        check_writable(args.json.parent, f"--json {args.json}")
        if args.json.is_dir():
            raise UserError(f"--json {args.json} is a directory; give a file")
    config = resolve(config, drop_unused=args.drop_unused)
    identifier = run_id(config)
    files = RunDirectory(Path(config.output.dir), identifier)
    stored = files.result()
    if args.skip_finished and stored and stored[metrics.STATUS] == RunStatus.FINISHED:
        say(f"run {identifier} is finished already")
        result = Result(stored, None)
    else:
        if args.go_on and not args.resume and stored is None:
            checkpoint = files.newest_checkpoint()
        elif not args.resume and stored is None and files.newest_checkpoint():
            say(f"an unfinished attempt exists; to continue it instead: {resume_command(config, identifier)}")
        result = launch(config, checkpoint)
        if not is_first_rank():
            return result.exit_code
    if result.wandb_directory is not None:
        say(f"W&B directory: {result.wandb_directory}")
    if result.status is RunStatus.INTERRUPTED:
        say(f"to resume: {resume_command(config, identifier)}")
    if args.json:
        write_atomically(args.json, json_text(result.summary, indent=1) + "\n")
    print(result.last_line(), flush=True)
    return result.exit_code


def resume_command(config: Config, identifier: str) -> str:
    words = ["python", "-m", "fl_platform", "run", "--resume", identifier, f"output.dir={config.output.dir}"]
    return shlex.join(words)


def without_hyphens(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    """``--key=value``, as W&B's ${args} writes keys, without its hyphens; the options of ``run`` stay."""
    options = tuple(f"{option}=" for option in parser._option_string_actions)
    keys = [word for word in words if word.startswith("--") and "=" in word and not word.startswith(options)]
    return [word.lstrip("-") if word in keys else word for word in words]


def from_checkpoint(target: str, words: list[str]) -> tuple[Config, Path]:
    """The configuration and checkpoint of a run id below output.dir, of a run directory, or of a checkpoint file."""
    from fl_platform.federation.checkpoints import check_valid, saved_config
    from fl_platform.runs.directory import RunDirectory

    refuse_changes(words)
    given = parse_words(words)
    if Path(target).suffix == ".ckpt":
        checkpoint = check_valid(Path(target))
    else:
        run_path = Path(target) if Path(target).is_dir() else Path(from_given(given).output.dir) / target
        found = RunDirectory(run_path.parent, run_path.name).newest_checkpoint()
        if found is None:
            raise UserError(
                f"--resume {target}: no checkpoint below {run_path}; "
                "give a run id in output.dir, a run directory or a .ckpt file"
            )
        checkpoint = found
    saved = parse_mapping(saved_config(checkpoint), f"--resume {target}")
    saved.merge_with(given)
    if len(checkpoint.resolve().parents) > 4:  # <output.dir>/<run id>/attempts/<n>/checkpoints/<file>
        saved.merge_with(OmegaConf.create({"output": {"dir": str(checkpoint.resolve().parents[4])}}))
    return from_given(saved), checkpoint


def refuse_changes(words: list[str]) -> None:
    """Only keys that do not say which experiment this is may be given with --resume."""
    from fl_platform.config.schema import known_keys

    options = known_keys()
    for word in words:
        key = word.partition("=")[0]
        option = options.get(key)
        if key.startswith("trainer."):
            continue
        if option is None or option.metadata["identity"] or key in ("preset", "scenario", "chosen", "point"):
            raise UserError(
                f"--resume with {word}: this would be another experiment; "
                "only keys such as threads, device, engine or tracking.mode may change"
            )
