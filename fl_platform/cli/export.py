"""``export``: the model of a run as a file, with a model card beside it."""

from pathlib import Path

from fl_platform.cli.parser import Parser

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
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="where to write it")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="tensors by name, to be read with torch.load(FILE, weights_only=True), or a program that needs no code "
        "of the platform",
    )
    options = parser.parse_args(args)

    from fl_platform.federation.export import export

    given = Path(options.run)
    run = given if given.is_dir() else options.runs / options.run
    for path in export(run, options.to, options.which, options.format):
        print(path)
    return 0
