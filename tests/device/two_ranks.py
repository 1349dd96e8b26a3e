"""Two ranks on simulated devices, a process each, that share what they import: what comes out is saved by the first."""

import multiprocessing
import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import DDPStrategy

from fl_platform.config.options import walk
from fl_platform.config.registry import ALGORITHMS
from fl_platform.engines.ranks import Ranks
from tests.device import process_group, simulated  # noqa: F401  registers the process group
from tests.device.runs import SimulatedAccelerator
from tests.federations import Finished, make_config, train

RANKS = 2
TIMEOUT = timedelta(minutes=2)


class SimulatedDDP(DDPStrategy):
    """Lightning's DDP on the one device that each of the processes sees."""

    def __init__(self) -> None:
        super().__init__(accelerator=SimulatedAccelerator(), parallel_devices=[simulated.device()] * RANKS)

    def determine_ddp_device_ids(self) -> None:
        """CUDA's alone."""


def cases(methods: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Arguments by name: every method on one of the engines, gradient memories also sharded, on the device and host."""
    found: dict[str, tuple[str, ...]] = {}
    for number, method in enumerate(methods):
        args = (
            f"algorithm.name={method}",
            f"engine={('loop', 'stacked')[number % 2]}",
            "num_rounds=2",
            "local_steps=2",
        )
        found[method] = args
        if "memory_shard" in dict(walk(ALGORITHMS.get(method))):
            for scope, place in (("global", "null"), ("tensor", "cpu")):
                more = (
                    f"algorithm.qp.scope={scope}",
                    "algorithm.memory_shard=true",
                    f"algorithm.memory_device={place}",
                )
                found[f"{method}, {scope}, sharded on {place}"] = (*args, *more)
    return found


def run(args: tuple[str, ...], **how: Any) -> Finished:
    return train(make_config(*args), **how)


def main(folder: Path, methods: list[str]) -> None:
    """Run the cases of these methods on both ranks; raises RuntimeError where the second one fails."""
    torch.set_num_threads(1)
    second = multiprocessing.get_context("fork").Process(target=run_rank, args=(1, folder, methods))
    second.start()
    run_rank(0, folder, methods)
    second.join()
    if second.exitcode:
        raise RuntimeError(f"the second rank ended with {second.exitcode}")


def run_rank(rank: int, folder: Path, methods: list[str]) -> None:
    os.environ["LOCAL_RANK"] = str(rank)  # Lightning does not start processes then
    torch.distributed.init_process_group(
        simulated.NAME, init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=RANKS, timeout=TIMEOUT
    )
    saved = {}
    for name, args in cases(methods).items():
        with simulated.counting() as counts:
            done = run(args, ranks=RANKS, strategy=SimulatedDDP())
        saved[name] = done.params, done.module.global_buffers, counts.kernels.total()
    if rank == 0:
        torch.save(saved, folder / "two_ranks.pt")
    Ranks.leave()
