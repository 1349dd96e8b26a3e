"""``docs``: the parts of README.md and docs/ that are made from the code."""

from pathlib import Path

from fl_platform.commands import Parser
from fl_platform.errors import UserError


def main(words: list[str]) -> int:
    parser = Parser(
        prog="fl_platform docs",
        description="Check that the generated parts of the documents are current, or write them.",
    )
    parser.add_argument("--write", action="store_true", help="renew what is stale")
    parser.add_argument("--root", type=Path, default=Path(), metavar="DIR", help="the repository (this directory)")
    args = parser.parse_args(words)

    from fl_platform import documentation

    if args.write:
        for name in documentation.write(args.root):
            print(args.root / name)
    elif old := documentation.stale(args.root):
        raise UserError(
            f"the generated parts of {', '.join(old)} are not current; `fl_platform docs --write` renews them"
        )
    return 0
