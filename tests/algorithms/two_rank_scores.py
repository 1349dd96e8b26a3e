"""Run by torch.distributed.run: FedDyn on two ranks; the first rank saves its figures."""

import json
import os
import sys
from pathlib import Path

import torch

from fl_platform.engines.ranks import Ranks
from tests.federations import make_config, train

ARGUMENTS = ("algorithm.name=feddyn", "num_rounds=4", "evaluation.every=2", "engine=loop")
READINGS = ("server", "active_mean")


def main() -> None:
    torch.set_num_threads(1)
    done = {
        reading: train(make_config(*ARGUMENTS, f"algorithm.evaluated={reading}"), ranks=2).figures()
        for reading in READINGS
    }
    if os.environ["RANK"] == "0":
        Path(sys.argv[1]).write_text(json.dumps(done), encoding="utf-8")
    Ranks.leave()


if __name__ == "__main__":
    main()
