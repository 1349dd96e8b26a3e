"""How fast round-off grows: a run in float32 and one in float64, alike in everything else, and how far apart they get.

python -m benchmarks.round_off scenario=mnist_w0.01_s10 local_lr=0.01
python -m benchmarks.round_off scenario=mnist_w0.01_s10 local_lr=0.01 model.norm=none

The arguments are those of `run`. A row a round: the length of the global model, and the distance between the two.
"""

import sys

from fl_platform.federation.build import build, make_algorithm  # before Lightning: a torchvision for CUDA works then

# isort: split

import lightning as L
import torch

from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.federation.trainer import attach, make_trainer, quieten_lightning

QUIET = ["num_rounds=12", "tracking.mode=disabled", "evaluation.every=1000000", "trainer.enable_progress_bar=false"]


class Models(L.Callback):
    """The global model after each round."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.seen.append(pl_module.global_params.double().clone())  # type: ignore[operator]


def trained(args: list[str], precision: str) -> list[torch.Tensor]:
    spec = resolve(compose([*QUIET, *args, f"precision={precision}"]))
    algorithm, models = make_algorithm(spec.config), Models()
    attach(make_trainer(spec), [], [algorithm, models]).fit(build(spec.config, algorithm))
    return models.seen


def main(args: list[str]) -> None:
    quieten_lightning()
    coarse, fine = trained(args, "float32"), trained(args, "float64")
    print(f"{'round':>5} {'|x|':>8} {'|x - y|':>9}")
    for number, (x, y) in enumerate(zip(coarse, fine, strict=True), 1):
        print(f"{number:5} {y.norm():8.3f} {(x - y).norm():9.1e}")


if __name__ == "__main__":
    main(sys.argv[1:])
