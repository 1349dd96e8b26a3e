"""Build the documentation as a web site in build/site that needs no network to be read.

    python -m tools.site            # `make site`; then open build/site/index.html

The pages keep their places relative to each other, so links work here as in the repository. Formulas become MathML,
which browsers draw without a script.
"""

import re
import shutil
import sys
from pathlib import Path

from fl_platform.cli import exit_code
from fl_platform.cli.parser import Parser
from fl_platform.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "docs/**/*.md",
    "docs/**/*.png",
    "docs/**/*.svg",
    "reports/*.md",
    "reports/*/*.md",
    "reports/*/*.png",
    "benchmarks/README.md",
    "benchmarks/*.png",
    "sweeps/README.md",
    "examples/*.md",
    "examples/*.ipynb",
    "examples/plugin/**/*.py",
    "fl_platform/dashboard/static/uplot.LICENSE.txt",
)
"""What the site shows, and the files those pages link to."""

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<![\w\\`])\$([^$\n]+)\$(?![\w`])")


def main(args: list[str]) -> int:
    """Build the site; returns the exit code."""
    Parser(prog="python -m tools.site", description="Build the documentation as a web site in build/site.").parse_args(
        args
    )
    try:
        from mkdocs.commands.build import build
        from mkdocs.config import load_config
        from mkdocs.exceptions import MkDocsException
    except ModuleNotFoundError as error:
        raise UserError(
            f"the site needs {error.name}, which requirements-dev.txt lists; `make site` installs it"
        ) from None

    source = collect(ROOT, ROOT / "build" / "site-source")
    try:
        config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(source))
        build(config)
    except MkDocsException as error:
        raise UserError(f"the site cannot be built: {error}") from None
    print(Path(config["site_dir"]) / "index.html")
    return 0


def collect(root: Path, target: Path) -> Path:
    """Copy the pages of ``root`` to ``target``, formulas as MathML; returns ``target``."""
    shutil.rmtree(target, ignore_errors=True)
    for pattern in PAGES:
        for path in sorted(root.glob(pattern)):
            copy = target / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                copy.write_text(with_formulas(path.read_text(encoding="utf-8")), encoding="utf-8")
            else:
                shutil.copy(path, copy)
    return target


def with_formulas(text: str) -> str:
    """Markdown with its ```math blocks and $formulas$ as MathML; code is left alone."""
    from latex2mathml.converter import convert

    parts, end = [], 0
    for block in _FENCED.finditer(text):
        parts.append(_INLINE.sub(lambda found: convert(found[1]), text[end : block.start()]))
        parts.append(f"{convert(' '.join(block[2].split()), display='block')}\n" if block[1] == "math" else block[0])
        end = block.end()
    return "".join([*parts, _INLINE.sub(lambda found: convert(found[1]), text[end:])])


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
