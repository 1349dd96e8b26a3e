"""CPU time of W1's rounds in two checkouts, in turns: what a change of the code costs.

    python -m benchmarks.compare_checkouts ../before --turns 4 algorithm.name=gradma

Both run with this interpreter, each with the package and the benchmarks of its own root. Arguments behind the options
are those of `run` and come after W1's. The ratio is that of the lower quartiles over all rounds of all turns, which
other programs on the machine move least.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.federation import w1_arguments

TIMED = """
import gc, json, sys
from benchmarks.federation import run
gc.collect()
gc.freeze()  # as the command line leaves what it imported; else one round has a collection of all of it
print(json.dumps([seconds.cpu for seconds in run(sys.argv[2:], int(sys.argv[1])).watch.rounds]))
"""


def seconds_of_rounds(root: Path, rounds: int, args: list[str]) -> list[float]:
    """CPU seconds of each timed round of a run in a checkout."""
    command = [sys.executable, "-c", TIMED, str(rounds), *args]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time of W1's rounds in this checkout over that in another.")
    parser.add_argument("other", type=Path, help="root of the other checkout")
    parser.add_argument("--rounds", type=int, default=40, help="timed rounds of a run")
    parser.add_argument("--turns", type=int, default=4, help="runs in each checkout")
    chosen, extra = parser.parse_known_args()
    roots = {"other": chosen.other.resolve(), "this": Path(__file__).resolve().parent.parent}
    seconds: dict[str, list[float]] = {name: [] for name in roots}
    for _ in range(chosen.turns):
        for name, root in roots.items():
            seconds[name] += seconds_of_rounds(root, chosen.rounds, w1_arguments(*extra))
    other, this = (1000 * float(np.quantile(seconds[name], 0.25)) for name in ("other", "this"))
    print(f"other {other:.2f} ms, this {this:.2f} ms: {this / other:.4f}")


if __name__ == "__main__":
    main()
