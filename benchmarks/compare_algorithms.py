"""All sixteen algorithms with their default hyper-parameters on one data set, and the figure of their accuracies.

python -m benchmarks.compare_algorithms digits --seeds 3 --rounds 60
python -m benchmarks.compare_algorithms mnist --rounds 60

Writes docs/algorithms/<data set>.csv (a row per run and round) and .png; `make docs` makes the
tables of docs/algorithms.md from the CSV. One run after another on one thread.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import pandas as pd

from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.federation.launch import launch
from fl_platform.paper.methods import GROUPINGS, METHODS
from fl_platform.reporting import canvas
from fl_platform.reporting.curves import Seed, average
from fl_platform.runs import metrics

DIRECTORY = Path(__file__).resolve().parent.parent / "docs" / "algorithms"
PANELS = {"worker": "Changes the workers", "server": "Changes the server", "both": "Changes both"}


def one_run(name: str, data: str, seed: int, rounds: int) -> list[dict[str, object]]:
    """A row per round: accuracy in percent and the seconds of the round without its evaluation."""
    with tempfile.TemporaryDirectory() as directory:
        arguments = [f"algorithm.name={name}", f"data.name={data}", f"seed={seed}", f"num_rounds={rounds}"]
        arguments += [
            "data.dirichlet_omega=0.1",
            "tracking.mode=disabled",
            "checkpoint.every=0",
            f"output.dir={directory}",
        ]
        launch(resolve(compose([*arguments, "trainer.enable_progress_bar=false"])))
        [file] = Path(directory).rglob("rounds.jsonl")
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        {
            "algorithm": name,
            "seed": seed,
            "round": row[metrics.ROUND],
            "accuracy": round(100 * row[metrics.TEST_ACCURACY], 2) if metrics.TEST_ACCURACY in row else None,
            "seconds": round(row[metrics.ROUND_SECONDS], 4),
        }
        for row in rows
    ]


def seed_of(rows: pd.DataFrame) -> Seed:
    rounds = rows["round"].to_numpy(dtype=float)
    return Seed(rounds, rows["accuracy"].to_numpy(dtype=float), rounds)


def draw(runs: pd.DataFrame, title: str, place: Path) -> None:
    """Three panels as the paper groups the methods, FedAvg in each; bands are one standard deviation over seeds."""
    with canvas.drawing():
        figure, axes = canvas.panels(len(PANELS))
        figure.set_figheight(3.9)  # room for sixteen names in the legend
        for axis, (group, heading) in zip(axes, PANELS.items(), strict=True):
            for name in GROUPINGS[group]:
                style = METHODS[name].style
                own = runs[runs["algorithm"] == name]
                curve = average([seed_of(rows) for _, rows in own.groupby("seed")], most=100)
                axis.plot(curve.x, curve.mean, color=style.color, linestyle=style.dashes, label=METHODS[name].label)
                if curve.has_band:
                    axis.fill_between(curve.x, curve.low, curve.high, color=style.color, alpha=0.12, linewidth=0)
            axis.set_title(heading, fontsize=9)
            axis.set_xlabel("Round")
            axis.set_ylim(0, 100)
        axes[0].set_ylabel("Test accuracy (%)")
        figure.suptitle(title, fontsize=10)
        canvas.legend(figure, axes)
        figure.savefig(place, metadata={"Software": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("digits", "mnist"))
    parser.add_argument("--seeds", type=int, default=1, help="runs of each algorithm")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--draw-only", action="store_true", help="draw from the CSV that is there")
    args = parser.parse_args()
    table = DIRECTORY / f"{args.data}.csv"
    if not args.draw_only:
        rows = []
        for name in METHODS:
            for seed in range(args.seeds):
                rows += one_run(name, args.data, seed, args.rounds)
            last = rows[-1]
            print(f"{name}: accuracy {last['accuracy']} after {last['round']} rounds", file=sys.stderr, flush=True)
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_csv(table, index=False)
    runs = pd.read_csv(table)
    seeds = runs["seed"].nunique()
    title = f"{args.data}, ω=0.1, 10 of 100 workers a round, default hyper-parameters, {seeds} seed{'s' * (seeds > 1)}"
    draw(runs, title, table.with_suffix(".png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
