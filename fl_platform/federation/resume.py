"""Going on with a run: its checkpoint, the keys that may change, and the longer run that one can become.

An interrupted run goes on in its own directory, under the id it was started with. With a larger ``num_rounds`` a run
becomes another experiment: it has the run id, directory and result of a run of that length, starts from the last
checkpoint of the shorter one, which stays as it is, and comes to the same bits as if it had been started so.
"""

from pathlib import Path
from typing import Any

from fl_platform.config.compose import from_given, parse_mapping
from fl_platform.config.given import Given, lay_over
from fl_platform.config.options import enters_identity
from fl_platform.config.plugins import import_plugins
from fl_platform.config.resolve import RunSpec, all_options, resolve
from fl_platform.config.schema import Config, flatten, to_dict
from fl_platform.errors import UserError
from fl_platform.federation.checkpoints import check_valid, diverged_round, saved_config
from fl_platform.federation.named_code import code_arguments, names_in, refuse_unnamed_code, trusted
from fl_platform.runs.checkpoint_files import round_of
from fl_platform.runs.directory import RunDirectory

LENGTH = "num_rounds"


def resumed(target: str, given: Given) -> tuple[RunSpec, Path]:
    """Return the run and checkpoint of a run id below output.dir, of a run directory, or of a checkpoint file.

    ``given`` are further keys. Raises UserError where there is no checkpoint, for a ``num_rounds`` that the run has
    passed, and for keys that would make another experiment of it.
    """
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
    values = saved_config(checkpoint)
    saved = parse_mapping(values, f"--resume {target}")
    trained_with = from_given(saved)
    refuse_unnamed_code(trained_with, {*names_in(given), *trusted()}, f"--resume {target}")
    code = code_arguments(to_dict(trained_with))
    lay_over(saved, given)
    config = from_given(saved)
    changed = {key: value for key, value in flatten(given) if key not in code}
    refuse_changes(changed, config)
    home = run_directory(checkpoint)
    if config.num_rounds == values.get(LENGTH):
        return resolve(config, directory=home), checkpoint
    if (config.num_rounds or 0) <= round_of(checkpoint):
        raise UserError(
            f"--resume with {LENGTH}={config.num_rounds}: the run is at round {round_of(checkpoint)}; "
            "a run can be made longer, not shorter"
        )
    if (diverged := diverged_round(checkpoint)) is not None:
        raise UserError(f"--resume with {LENGTH}={config.num_rounds}: the run diverged in round {diverged}")
    for key in ("local_lr_schedule", "server_lr_schedule"):
        if getattr(config, key) == "cosine":
            raise UserError(
                f"--resume with {LENGTH}={config.num_rounds}: {key}=cosine makes every round depend on the length of "
                "the run; start it anew"
            )
    if home is not None and "output.dir" not in changed:
        config.output.dir = str(home.parent)
    return resolve(config), checkpoint


def run_directory(checkpoint: Path) -> Path | None:
    """Return the run's directory of ``<run id>/attempts/<n>/checkpoints/<file>``, or None for a file elsewhere."""
    parents = checkpoint.resolve().parents
    return parents[3] if len(parents) > 4 and parents[2].name == "attempts" else None


def refuse_changes(changed: dict[str, Any], config: Config) -> None:
    """Raise UserError for keys that say which experiment this is, but for its length: they cannot change."""
    import_plugins(config.plugins)
    options = all_options(config)
    for key, value in changed.items():
        option = options.get(key)
        if key.startswith("trainer.") or key == LENGTH:
            continue
        if option is None or enters_identity(option) or key in ("preset", "scenario", "chosen", "point"):
            raise UserError(
                f"--resume with {key}={value}: this would be another experiment; "
                f"only {LENGTH}, to make the run longer, and keys such as threads, device, engine or tracking.mode "
                "may change"
            )
