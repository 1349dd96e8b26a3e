"""``export``: the model of a run as a file, with a model card beside it."""

from pathlib import Path

from fl_platform.cli.parser import Parser
from fl_platform.config.compose import parse_arguments
from fl_platform.errors import UserError

FORMATS = ("state_dict", "torchscript", "exported_program")


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(
        prog="fl_platform export",
        description="Write the model of a run to a file, and FILE.json beside it: data set, method, accuracy, "
        "configuration.",
        epilog="example: fl_platform export 3f2a9c0b17de --which best --to model.pt",
    )
    parser.add_argument("run", help="a run directory, or a run id below --runs")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="output.dir of the run")
    parser.add_argument(
        "--which",
        choices=("best", "last"),
        default="last",
        help="the model of the last round, or the one with the best accuracy, which checkpoint.keep_best=true keeps",
    )
    parser.add_argument("--to", "--out", type=Path, required=True, metavar="FILE", help="where to write it")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="tensors by name, to be read with torch.load(FILE, weights_only=True), or a program that needs no code "
        "of the platform",
    )
    parser.add_argument(
        "keys",
        nargs="*",
        metavar="KEY=VALUE",
        help="plugins=[...] and model.name=... of a run that has such code",
    )
    options = parser.parse_intermixed_args(args)  # keys may come last

    from fl_platform.federation.export import export
    from fl_platform.federation.named_code import MODEL_KEYS, code_arguments, names_in

    given = Path(options.run)
    run = given if given.is_dir() else options.runs / options.run
    named = parse_arguments(options.keys)
    if others := [key for key in options.keys if key.partition("=")[0] not in code_arguments(named, MODEL_KEYS)]:
        raise UserError(f"export {options.run} {others[0]}: only plugins and a model's dotted path are named again")
    for path in export(run, options.to, options.which, options.format, names_in(named)):
        print(path)
    return 0
