"""Make the pictures of the README in docs/images: curves and a table of the MNIST archive, the dashboard of some runs.

    python -m tools.screenshots --runs runs/demo       # after `make demo`; needs playwright and a chromium

The curves and the table come from reports/mnist/runs.parquet, the dashboard from the runs of ``demo``.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fl_platform.cli import exit_code
from fl_platform.cli.parser import Parser
from fl_platform.dashboard.server import served
from fl_platform.errors import UserError
from fl_platform.paper.packaged import packaged
from fl_platform.reporting import figures, render, tables
from fl_platform.reporting.report import read_report
from fl_platform.runs.frames import Runs, load, select, with_cases

SHOWN = ["fedavg", "scaffold", "fedavgm", "gradma"]
"""The methods of the picture of curves: few enough to tell apart."""
CHROMIUM_OPTIONS = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
_PAGE = """<!doctype html><meta charset="utf-8"><style>
body { font: 15px/1.35 "DejaVu Sans", sans-serif; margin: 0; padding: 18px; color: #1f2937; width: max-content }
table { border-collapse: collapse } caption { text-align: left; font-weight: bold; padding-bottom: 8px }
th, td { padding: 3px 14px; text-align: right; border-bottom: 1px solid #e5e7eb }
tbody th:first-child, td:first-child { text-align: left } thead th { border-bottom: 2px solid #374151 }
tbody + tbody tr:first-child > * { border-top: 2px solid #9ca3af }
ul, p { display: none }
</style>"""


def main(args: list[str]) -> int:
    """Write the pictures; returns the exit code."""
    parser = Parser(prog="python -m tools.screenshots", description="Make the pictures of the README.")
    parser.add_argument("--runs", type=Path, default=Path("runs/demo"), metavar="DIR", help="runs of the dashboard")
    parser.add_argument("--out", type=Path, default=Path("docs/images"), metavar="DIR", help="where pictures go")
    options = parser.parse_args(args)
    if not options.runs.is_dir():
        raise UserError(f"--runs {options.runs}: no such directory; `make demo` makes runs/demo")
    options.out.mkdir(parents=True, exist_ok=True)
    runs = mnist_runs()
    curves = figures.accuracy_curves(
        select(runs, {"algorithm.name": SHOWN, "cohort_size": 10}), "all", smooth=10, select="best"
    )
    curves.savefig(options.out / "curves.png", dpi=110, bbox_inches="tight", metadata={"Software": None})
    print(options.out / "curves.png")
    with browser() as opened, served(options.runs) as (address, _):
        page = opened.new_page(viewport={"width": 1280, "height": 800}, device_scale_factor=1)
        page.set_content(_PAGE + render.render(table(runs), "html"))
        page.locator("body").screenshot(path=options.out / "table.png")
        print(options.out / "table.png")
        for view in ("runs", "curves"):
            page.goto("about:blank")
            page.goto(f"{address}/#view={view}")
            page.wait_for_selector(".runs tbody tr" if view == "runs" else ".u-legend, canvas")
            page.wait_for_timeout(3000)  # charts are drawn when their points have come
            # where the runs lie on this machine is of no interest
            page.evaluate("document.getElementById('root').textContent = 'runs/demo'")
            path = options.out / ("dashboard.png" if view == "curves" else "dashboard_runs.png")
            page.screenshot(path=path, clip={"x": 0, "y": 0, "width": 1280, "height": 640 if view == "curves" else 800})
            print(path)
    return 0


def mnist_runs() -> Runs:
    """The runs of the archive's tables: preset paper, 500 rounds."""
    report = read_report({"mnist": packaged("reports") / "mnist"}, "mnist")
    runs = with_cases(select(load(report.source_paths()), report.where), report.cases)
    return select(runs, {"num_rounds": 500, "case": "paper"})


def table(runs: Runs) -> Any:
    """Top accuracies of the columns with S = 10, all methods."""
    return tables.statistic_table(select(runs, {"cohort_size": 10}), select="best", seeds=3)


@contextmanager
def browser() -> Iterator[Any]:
    """A headless chromium of this machine; ``$CHROMIUM`` may name it."""
    from playwright.sync_api import sync_playwright

    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise UserError("no chromium on this machine; install one, or name it in $CHROMIUM")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=CHROMIUM_OPTIONS)
        try:
            yield opened
        finally:
            opened.close()


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
