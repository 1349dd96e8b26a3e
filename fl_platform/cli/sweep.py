"""``sweep``: run, watch and evaluate many runs from one W&B sweep YAML, without a server."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_platform.cli.parser import Parser
from fl_platform.cli.sweep_files import prune_options, prune_runs, restore_options, restore_results, target_options
from fl_platform.errors import UserError, sentence

if TYPE_CHECKING:
    from fl_platform.sweeps.definition import Sweep
    from fl_platform.sweeps.ledger import Ledger
    from fl_platform.sweeps.status import Status

ACTIONS = {
    "run": "launch a sweep, or go on with it",
    "status": "how far a sweep is",
    "stop": "end its launchers: trials finish their round and save",
    "check": "validate YAMLs without running them",
    "best": "the best configuration per algorithm and scenario, as a file for chosen=",
    "prune": "drop the checkpoints of runs that have their result",
    "restore": "put the results of an archive back, so that sweeps go on from it",
}


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    if args[:1] == ["serve-trials"]:  # how a launcher calls itself
        from fl_platform.cli.trial_server import main as serve_trials

        return serve_trials(args[1:])
    parser = Parser(
        prog="fl_platform sweep",
        description="Many runs from one W&B sweep YAML, which `wandb sweep` and `wandb agent` can run as well.",
        epilog="\n".join(f"  {name:9} {text}" for name, text in ACTIONS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=ACTIONS, help="each has its own --help")
    action = parser.parse_args(args[:1] or ["--help"]).action
    own = Parser(prog=f"fl_platform sweep {action}", description=f"{ACTIONS[action].capitalize()}.")
    declare, execute = {
        "run": (run_options, run_sweep),
        "status": (target_options, show_status),
        "stop": (target_options, stop_sweep),
        "check": (check_options, check_sweeps),
        "best": (best_options, choose_best),
        "prune": (prune_options, prune_runs),
        "restore": (restore_options, restore_results),
    }[action]
    declare(own)
    options = own.parse_intermixed_args(args[1:])
    return execute(options)


def run_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``sweep run``."""
    target_options(parser)
    parser.add_argument(
        "--jobs",
        type=positive,
        metavar="K",
        help="trials at the same time, on each GPU where there are any; default: one per GPU, else one per core",
    )
    parser.add_argument("--workers", dest="jobs", action=FormerName, type=positive, help=argparse.SUPPRESS)
    parser.add_argument("--cap", "--count", type=positive, metavar="N", help="at most so many trials")
    parser.add_argument(
        "--retries", type=count, default=1, metavar="R", help="how often a failed trial is tried again (default 1)"
    )
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="trials inside the launcher's own process, or K such launchers: no start-up for each",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="an interpreter of its own for every trial, not a copy of one that has imported torch: seconds more each",
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="processes of this machine, or tasks of a Ray cluster",
    )
    parser.add_argument("--address", help="--engine ray: the cluster; without it and RAY_ADDRESS one is started here")
    parser.add_argument(
        "--cpus-per-trial", type=float, default=1.0, metavar="C", help="--engine ray: CPUs a trial takes"
    )
    parser.add_argument(
        "--gpus-per-trial", type=float, default=0.0, metavar="G", help="--engine ray: GPUs, or a fraction of one"
    )


class FormerName(argparse.Action):
    """An option under its former name, ``--workers``: sets ``--jobs`` and prints a hint."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        print(f"hint: {option_string} is called --{self.dest} now", file=sys.stderr)
        setattr(namespace, self.dest, values)


def check_options(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``sweep check``."""
    parser.add_argument("targets", nargs="+", type=Path, metavar="SWEEP", help="YAMLs, or names of packaged sweeps")


def best_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``sweep best``."""
    target_options(parser)
    parser.add_argument(
        "--by", default="test/top_accuracy", metavar="MEASURE", help="measure of the summary to choose by"
    )
    parser.add_argument(
        "--last",
        type=positive,
        metavar="N",
        help="choose by the mean of MEASURE over the last N rounds, such as --by test/accuracy --last 50",
    )
    parser.add_argument(
        "--select-on", choices=("test", "validation"), help="insist on what the trials were evaluated on"
    )
    parser.add_argument(
        "--reuse",
        action="append",
        type=pair,
        default=[],
        metavar="SCENARIO=FROM",
        help="a scenario that was not tuned takes the choice of another; may be given again",
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the chosen-values file there instead of printing it"
    )


def pair(text: str) -> tuple[str, str]:
    """Parse SCENARIO=FROM."""
    scenario, equals, source = text.partition("=")
    if not (scenario and equals and source):
        raise argparse.ArgumentTypeError(f"{text} is not of the form SCENARIO=FROM")
    return scenario, source


def positive(text: str) -> int:
    """Parse a whole number >= 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number >= 1")
    return int(text)


def count(text: str) -> int:
    """Parse a whole number >= 0."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number >= 0")
    return int(text)


def run_sweep(args: argparse.Namespace) -> int:
    """Run a sweep to its end; returns 0, 1 if a trial failed, or 130 if it ended with trials left."""
    from fl_platform.sweeps.api import LaunchOptions, carry_out
    from fl_platform.sweeps.definition import read_sweep

    options = LaunchOptions(
        jobs=args.jobs,
        cap=args.cap,
        retries=args.retries,
        forget_wandb=forget_wandb if args.in_process else None,
        fresh=args.fresh,
        engine=args.engine,
        address=args.address,
        cpus_per_trial=args.cpus_per_trial,
        gpus_per_trial=args.gpus_per_trial,
    )
    result = carry_out(read_sweep(args.target, args.keys), options)
    for entry in result.status.failed:
        print(
            sentence(f"trial {entry.number} failed {entry.failures} times: {entry.data.get('message')}"),
            file=sys.stderr,
        )
    print(result.status.line(), flush=True)
    return 130 if result.is_interrupted else 1 if result.status.failed else 0


def forget_wandb() -> None:
    """Make W&B read its environment variables again, which it otherwise does once per process."""
    import wandb

    wandb.teardown()


def show_status(args: argparse.Namespace) -> int:
    """Print how far a sweep is, what runs and what failed; of a directory of sweeps, a line for each."""
    from fl_platform.sweeps.definition import OVERRIDES_COPY, find_sweep, sweep_directories
    from fl_platform.sweeps.ledger import Ledger
    from fl_platform.sweeps.states import TrialState

    several = [] if args.keys or (args.target / OVERRIDES_COPY).is_file() else sweep_directories(args.target)
    if several:
        for directory in several:
            print(_status_line(directory))
        return 0
    sweep, directory = find_sweep(args.target, args.keys)
    with Ledger(directory, read_only=True) as ledger:
        entries = ledger.entries()
        if not entries:  # one that was launched was checked then
            from fl_platform.sweeps.api import refuse_problems

            refuse_problems(sweep)
        status = _current_status(sweep, ledger)
        running = [
            entry for entry in entries if entry.state is TrialState.STARTED and ledger.is_alive(entry.launcher or "")
        ]
    print(f"sweep {sweep.identifier} ({directory})\n{status.line()}")
    for entry in running:
        where = f"on {entry.host}, process {entry.pid}, attempt {entry.attempt}"
        print(f"trial {entry.number} runs as {entry.run_id} {where}")
    for entry in status.failed:
        print(sentence(f"trial {entry.number} failed {entry.failures} times: {entry.data.get('message')}"))
    if status.best is not None:
        point = ", ".join(f"{key}={value}" for key, value in status.best.params.items())
        print(sentence(f"best: run {status.best.run_id}, {point}"))
    return 0


def _current_status(sweep: "Sweep", ledger: "Ledger") -> "Status":
    from fl_platform.sweeps.proposals import limit
    from fl_platform.sweeps.status import status_of

    has_end = sweep.method == "grid" or sweep.run_cap is not None
    at_most = limit(sweep, None) if has_end else len(ledger.entries())
    return status_of(sweep, ledger, retries=ledger.retries(), at_most=at_most)


def _status_line(directory: Path) -> str:
    """How far the sweep of a directory is, or why that cannot be told."""
    from fl_platform.sweeps.definition import find_sweep
    from fl_platform.sweeps.ledger import Ledger

    try:
        sweep, _ = find_sweep(directory)
        with Ledger(directory, read_only=True) as ledger:
            return f"{directory}: {_current_status(sweep, ledger).line()}"
    except UserError as error:
        return sentence(f"{directory}: {error}")


def stop_sweep(args: argparse.Namespace) -> int:
    """Ask the launchers of a sweep to stop."""
    from fl_platform.sweeps.definition import find_sweep
    from fl_platform.sweeps.ledger import Ledger

    _, directory = find_sweep(args.target, args.keys)
    with Ledger(directory) as ledger:
        ledger.request_stop()
    print(f"asked the launchers of {directory} to stop; the same `sweep run` goes on later")
    return 0


def check_sweeps(args: argparse.Namespace) -> int:
    """Validate sweep YAMLs and chosen-values files; returns 2 if one has a problem."""
    from fl_platform.paper.packaged import sweep_file
    from fl_platform.sweeps.check import check_chosen, check_sweep, chosen_pairs

    worst = 0
    for path in map(sweep_file, args.targets):
        pairs = chosen_pairs(path)
        verdict = check_sweep(path) if pairs is None else check_chosen(path, pairs)
        for problem in verdict.problems:
            print(sentence(problem), file=sys.stderr)
            worst = 2
        if verdict.problems:
            continue
        if pairs is not None:
            print(f"{path}: values for {verdict.resolved} pairs of algorithm and scenario, each of them a run")
        else:
            size = "trials without end" if verdict.trials is None else f"{verdict.trials} trials"
            print(f"{path}: {size}; {verdict.resolved} points resolved, {verdict.runs} different runs")
    return worst


def choose_best(args: argparse.Namespace) -> int:
    """Print or write the best configuration per algorithm and scenario."""
    import yaml

    from fl_platform.sweeps.api import refuse_problems
    from fl_platform.sweeps.best import choose, write_chosen
    from fl_platform.sweeps.definition import find_sweep
    from fl_platform.sweeps.ledger import Ledger

    sweep, directory = find_sweep(args.target, args.keys)
    refuse_problems(sweep)
    with Ledger(directory, read_only=True) as ledger:
        content = choose(
            sweep,
            directory,
            ledger,
            args.by,
            args.select_on,
            dict(args.reuse),
            args.last,
            imports_plugins=not args.target.is_dir(),  # a directory is data; a YAML is named by the user
        )
    if args.write:
        write_chosen(args.write, content)
        found = [chosen for chosen in content["chosen"].values() if isinstance(chosen, dict)]  # others are reused
        print(f"{sum(map(len, found))} configurations written to {args.write}")
    else:
        print(yaml.safe_dump(content, sort_keys=False), end="")
    return 0
