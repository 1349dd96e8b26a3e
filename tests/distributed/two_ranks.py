"""Run by torch.distributed.run: every algorithm on two ranks; the first rank saves what came out."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from fl_platform.algorithms import base
from fl_platform.engines.ranks import Ranks
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from tests.federations import Finished, make_config, train

ARGUMENTS = ("engine=loop", "num_rounds=3", "cohort_size=3")
SHARED = "algorithm.memory_shard=true"
SCORED = ("algorithm.name=feddyn", "num_rounds=4", "evaluation.every=2", "engine=loop")
UNEQUAL = ("algorithm.name=mime", "local_steps=null", "local_epochs=2", "work.name=uniform", "cohort_size=5")
READINGS = ("server", "active_mean")


def results(folder: Path, ranks: int) -> dict[str, Finished]:
    """Every algorithm, the memory sharded where there is one, and GradMA continued by another number of ranks."""
    done = {}
    for name in base.names():  # the second round starts from what the first one left
        done[name] = train(make_config(f"algorithm.name={name}", *ARGUMENTS, "num_rounds=2"), ranks=ranks)
    for name in ("gradma", "gradma_s"):
        for scope in ("global", "tensor"):
            args = (f"algorithm.name={name}", f"algorithm.qp.scope={scope}", SHARED, *ARGUMENTS)
            done[f"{name}-{scope}-sharded"] = train(
                make_config(*args), ranks=ranks, checkpoints=folder / f"{name}-{scope}"
            )
    done["stacked"] = train(
        make_config("algorithm.name=scaffold", *ARGUMENTS, "engine=stacked", "cohort_chunk=2"), ranks=ranks
    )
    done["compressed"] = train(make_config("algorithm.name=scaffold", *ARGUMENTS, "compression.name=topk"), ranks=ranks)
    done["quantised"] = train(make_config(*ARGUMENTS, "compression.name=quantise", "compression.bits=4"), ranks=ranks)
    done["unequal work"] = train(make_config(*ARGUMENTS[:2], *UNEQUAL), ranks=ranks)
    done["one worker"] = train(make_config("algorithm.name=moon", *ARGUMENTS, "cohort_size=1"), ranks=ranks)
    return done


def scores(ranks: int) -> dict[str, list[dict[str, Any]]]:
    """What FedDyn logs with either of its models as the one that counts."""
    return {
        reading: train(make_config(*SCORED, f"algorithm.evaluated={reading}"), ranks=ranks).figures()
        for reading in READINGS
    }


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    ranks = int(os.environ["WORLD_SIZE"])
    done = results(folder, ranks)
    _, one_rank = sorted_checkpoints(folder / "one_rank")[0]
    args = ("algorithm.name=gradma", "algorithm.qp.scope=global", SHARED, *ARGUMENTS, "num_rounds=5")
    done["resumed"] = train(make_config(*args), ranks=ranks, resume=one_rank)
    scored = scores(ranks)
    if os.environ["RANK"] == "0":
        saved = {
            name: (d.params, d.module.global_buffers, d.module.scoreboard.top_accuracy) for name, d in done.items()
        }
        torch.save(saved, folder / "two_ranks.pt")
        (folder / "scores.json").write_text(json.dumps(scored), encoding="utf-8")
    Ranks.leave()
    assert not gloo_threads(), "threads of gloo outlive their group; they may abort the process at its end"


def gloo_threads() -> list[str]:
    """Names of this process's threads that belong to gloo."""
    names = [place.read_text().strip() for place in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]


if __name__ == "__main__":
    main()
