"""The program of a trial under watch: notes its starts and results, and kills itself now and then, anywhere."""

import os
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import fl_platform.federation.launch  # noqa: F401  before kill points watch every call
from fl_platform.cli import main
from fl_platform.runs.directory import RunDirectory
from tests.torture.kill_points import arm

PLACES = ("local steps", "server step", "row file", "checkpoint", "result")
SHARE_KILLED = 0.3


def watch(folder: Path) -> None:
    """Note in ``folder/published`` every result: whether there was one already, and that it is out."""
    complete = RunDirectory.complete

    def witnessed(self: RunDirectory, attempt: Path, result: dict[str, Any]) -> None:
        note(folder, self.run_id, "again" if self.result_file.exists() else "begins")
        complete(self, attempt, result)
        note(folder, self.run_id, "is out")

    RunDirectory.complete = witnessed  # type: ignore[method-assign]


def note(folder: Path, run_id: str, what: str) -> None:
    with open(folder / "published", "a", encoding="utf-8") as file:
        file.write(f"{run_id} {what}\n")


def notes(folder: Path) -> Counter[tuple[str, str]]:
    """How often what was noted of which run."""
    lines = (folder / "published").read_text(encoding="utf-8").splitlines()
    return Counter((run_id, what) for run_id, _, what in (line.partition(" ") for line in lines))


def check_published_once(folder: Path, run_ids: set[str]) -> None:
    """No result was ever made again, and every run was seen to make one."""
    seen = notes(folder)
    assert [run_id for run_id, what in seen if what == "again"] == []
    assert [run_id for (run_id, what), count in seen.items() if what == "is out" and count > 1] == []
    assert {run_id for run_id, _ in seen} == run_ids


def program(folder: Path) -> Path:
    """A program for the ``command`` of a sweep: ``fl_platform`` under watch."""
    path = folder / "fl-platform"
    path.write_text("from tests.torture.witness import trial\n\ntrial()\n", encoding="utf-8")
    return path


def trial() -> None:
    """What the program does: some trials are killed at a place in their first start, seeded by their run id."""
    folder, run_id = Path(sys.argv[0]).parent, os.environ["WANDB_RUN_ID"]
    watch(folder)
    rng = random.Random(run_id)
    place = rng.choice(PLACES)
    entry = 1 if place == "result" else rng.randint(1, 12)
    try:
        (folder / f"began-{run_id}").touch(exist_ok=False)
    except FileExistsError:
        sys.exit(main())
    if rng.random() < SHARE_KILLED:
        arm(place, entry, round(3000 ** rng.random()))
    sys.exit(main())
