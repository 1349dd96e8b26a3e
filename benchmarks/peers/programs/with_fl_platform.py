"""FedAvg with this platform as a user runs it: Trainer, W&B log offline, row file."""

import os
import tempfile

import fl_platform  # isort: skip - before Lightning: it lets torchvision for CUDA be imported beside torch for the CPU

import lightning as L
from common import Clock, arguments, read_settings

from fl_platform.federation.module import FederatedModule
from fl_platform.runs import metrics


class Ticks(L.Callback):
    """Tells the clock about the end of a round: the start of the next, when the last has been logged and written."""

    clock: Clock  # set before the run, which makes its callbacks without arguments

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, FederatedModule)
        if trainer.current_epoch:
            self.clock.tick(pl_module.history[-1][metrics.TEST_ACCURACY])


def main() -> None:
    from with_fl_platform import Ticks as Imported  # the class that the run imports by its name

    folder, clock = arguments()
    work, Imported.clock = read_settings(folder), clock
    with tempfile.TemporaryDirectory(prefix="fl_platform-peers-") as directory:
        fl_platform.run(
            {
                "plugins": ["benchmarks.synthetic"],
                "data.name": work.data,
                "data.partition_file": str(folder / "split.json"),
                "model.name": work.network,
                "model.norm": "none",
                "checkpoint.every": 0,
                "output.dir": directory,
            },
            algorithm="fedavg",
            callbacks=["with_fl_platform.Ticks"],
            cohort_size=work.cohort,
            local_steps=work.steps,
            batch_size=work.batch,
            local_lr=work.rate,
            seed=work.seed,
            num_rounds=clock.total + 1,  # the last one writes a checkpoint and is not timed
            threads=int(os.environ["OMP_NUM_THREADS"]),
            device="cpu",
            progress=False,
        )
    clock.finish("lightning", "wandb", "torch")


if __name__ == "__main__":
    main()
