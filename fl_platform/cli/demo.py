"""``demo``: run a sweep over all algorithms on built-in data and build its report."""

from pathlib import Path

from fl_platform.cli import report, sweep
from fl_platform.cli.parser import Parser

SWEEP = "demo_digits"
OUTPUT = Path("runs/demo")
REPORT = Path("reports") / report.DEMO


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(
        prog="fl_platform demo",
        description="All algorithms on scikit-learn's digits, offline: sweep, tables, figures, page.",
    )
    parser.parse_args(args)
    code = sweep.main(["run", SWEEP, "--in-process", "--jobs", "2", f"output.dir={OUTPUT}"])
    if code:
        return code
    code = report.main([REPORT.name, "--source", str(OUTPUT), "--html"])
    print((REPORT / "top_accuracy.txt").read_text(encoding="utf-8"))
    print((REPORT / "rounds_to_target.txt").read_text(encoding="utf-8"))
    print(f"W&B offline runs:  {OUTPUT}/wandb")
    print(f"tables, figures:   {REPORT}/")
    print(f"page for a browser: {REPORT}/report.html")
    print(f"live dashboard:    python -m fl_platform dashboard {OUTPUT}")
    print("next:              python -m fl_platform run data.name=mnist algorithm.name=gradma num_rounds=50")
    return code
