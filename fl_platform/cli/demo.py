"""``demo``: run a sweep over all algorithms on built-in data and build its report."""

from pathlib import Path

from fl_platform.cli import report, sweep
from fl_platform.cli.parser import Parser
from fl_platform.errors import UserError

SWEEP = Path("sweeps/demo_digits.yaml")
OUTPUT = Path("runs/demo")
REPORT = Path("reports/demo")


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(
        prog="fl_platform demo",
        description="All algorithms on scikit-learn's digits, offline: sweep, tables, figures, page.",
    )
    parser.parse_args(args)
    if not SWEEP.is_file():
        raise UserError(f"demo needs {SWEEP}: run it in a checkout of the platform")
    code = sweep.main(["run", str(SWEEP), "--in-process", "--jobs", "2", f"output.dir={OUTPUT}"])
    if code:
        return code
    code = report.main([REPORT.name, "--html"])
    print((REPORT / "top_accuracy.txt").read_text(encoding="utf-8"))
    print((REPORT / "rounds_to_target.txt").read_text(encoding="utf-8"))
    print(f"W&B offline runs:  {OUTPUT}/wandb")
    print(f"tables, figures:   {REPORT}/")
    print(f"page for a browser: {REPORT}/report.html")
    print(f"live dashboard:    python -m fl_platform dashboard {OUTPUT}")
    print("next:              python -m fl_platform run data.name=mnist algorithm.name=gradma num_rounds=50")
    return code
