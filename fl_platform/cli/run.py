"""``run``: one federated run, fresh or resumed."""

import shlex
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from fl_platform.config.arguments import RunArguments, parse_run
from fl_platform.config.compose import from_given, parse_arguments, parse_mapping
from fl_platform.config.options import enters_identity
from fl_platform.config.plugins import import_plugins
from fl_platform.config.resolve import RunSpec, all_options, resolve, spec_of
from fl_platform.config.schema import Config, shown, to_dict
from fl_platform.errors import UserError


def main(words: list[str]) -> int:
    args = parse_run(words)
    spec, checkpoint = (spec_of(args), None) if args.resume is None else resumed(args, args.resume)

    from fl_platform.federation.launch import SHOWN, Result, is_first_rank, launch, say
    from fl_platform.runs import metrics
    from fl_platform.runs.directory import RunDirectory, check_writable, json_text
    from fl_platform.runs.status import RunStatus
    from fl_platform.runs.writing import write_atomically

    if args.json:
        check_writable(args.json.parent, f"--json {args.json}")
        if args.json.is_dir():
            raise UserError(f"--json {args.json} is a directory; give a file")
    files = RunDirectory(spec.output, spec.run_id)
    stored = files.result()
    if args.skip_finished and stored and stored[metrics.STATUS] == RunStatus.FINISHED and stored.keys() >= SHOWN:
        say(f"run {spec.run_id} is finished already")
        result = Result(stored, None)
    else:
        if args.go_on and not args.resume and stored is None:
            checkpoint = files.newest_checkpoint()
        elif not args.resume and stored is None and files.newest_checkpoint():
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
    print(result.last_line(), flush=True)
    return result.exit_code


def resume_command(spec: RunSpec) -> str:
    """The command that goes on with a run, with the arguments that name code of the user's."""
    code = code_arguments(OmegaConf.create(to_dict(spec.config)))
    keys = [f"{key}={shown(value)}" for key, value in code.items()]
    return shlex.join(
        ["python", "-m", "fl_platform", "run", "--resume", spec.run_id, *keys, f"output.dir={spec.output}"]
    )


def code_arguments(config: DictConfig) -> dict[str, Any]:
    """The keys of a configuration that name code to be imported: plugins, and a model by its dotted path."""
    named = {"plugins": OmegaConf.select(config, "plugins"), "model.name": OmegaConf.select(config, "model.name")}
    if isinstance(named["plugins"], ListConfig):
        named["plugins"] = OmegaConf.to_container(named["plugins"])
    if isinstance(named["model.name"], str) and "." not in named["model.name"]:
        del named["model.name"]  # one of the platform's own, or of a plugin
    return {key: value for key, value in named.items() if value}


def refuse_unnamed_code(named: dict[str, Any], given: DictConfig, target: str) -> None:
    """Raise UserError unless the command line repeats every key of a checkpoint that names code."""
    repeated = code_arguments(given)
    missing = [f"{key}={shown(value)}" for key, value in named.items() if repeated.get(key) != value]
    if missing:
        raise UserError(
            f"--resume {target}: the checkpoint names code to import, which a file alone may not start; "
            f"if you trust it, give it again: {' '.join(missing)}"
        )


def resumed(args: RunArguments, target: str) -> tuple[RunSpec, Path]:
    """Return the run and checkpoint of a run id below output.dir, of a run directory, or of a checkpoint file.

    The run goes on in its own directory, under the id it was started with. Raises UserError where there is no
    checkpoint, and for keys that would make another experiment of it.
    """
    from fl_platform.federation.checkpoints import check_valid, saved_config
    from fl_platform.runs.directory import RunDirectory

    if args.config:
        raise UserError(
            f"--resume with --config {args.config[0]}: the checkpoint holds its configuration; leave --config out"
        )
    given = parse_arguments(args.keys)
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
    again = code_arguments(saved)
    refuse_unnamed_code(again, given, target)
    saved.merge_with(given)
    config = from_given(saved)
    refuse_changes([key for key in args.keys if key.partition("=")[0] not in again], config)
    return resolve(config, directory=run_directory(checkpoint)), checkpoint


def run_directory(checkpoint: Path) -> Path | None:
    """Return the run's directory of ``<run id>/attempts/<n>/checkpoints/<file>``, or None for a file elsewhere."""
    parents = checkpoint.resolve().parents
    return parents[3] if len(parents) > 4 and parents[2].name == "attempts" else None


def refuse_changes(keys: list[str], config: Config) -> None:
    """Raise UserError for keys that say which experiment this is: they cannot change with --resume."""
    import_plugins(config.plugins)
    options = all_options(config)
    for argument in keys:
        key = argument.partition("=")[0]
        option = options.get(key)
        if key.startswith("trainer."):
            continue
        if option is None or enters_identity(option) or key in ("preset", "scenario", "chosen", "point"):
            raise UserError(
                f"--resume with {argument}: this would be another experiment; "
                "only keys such as threads, device, engine or tracking.mode may change"
            )
