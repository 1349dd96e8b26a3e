"""FedAvg with fluke: its FedAVG, data loaders and evaluator."""

from typing import Any

import tolerant_torchvision  # noqa: F401 - before what imports torchvision
from common import EVALUATED_AT_ONCE, begin
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver, ServerObserver
from torch_parts import make_network, tensors
from torchmetrics import Accuracy

CLASSES = 10


class Ticks(FederationObserver, ServerObserver):
    """Tells the clock about the end of a round."""

    def __init__(self, clock: Any) -> None:
        self.clock, self.accuracy = clock, 0.0

    def server_evaluation(self, round: int, eval_type: str, evals: Any, **kwargs: Any) -> None:
        self.accuracy = evals.get("accuracy", self.accuracy)

    def end_round(self, round: int) -> None:
        self.clock.tick(self.accuracy)


def main() -> None:
    work, clock = begin()
    environment = FlukeENV()
    environment.set_seed(work.seed)
    environment.set_device("cpu")
    environment.set_eval_cfg(server=True, locals=False, pre_fit=False, post_fit=False)
    accuracy = Accuracy(task="multiclass", num_classes=CLASSES)
    environment.set_evaluator(ClassificationEval(1, CLASSES, accuracy=accuracy))
    x, y, test_x, test_y = tensors(work)
    loaders = [
        FastDataLoader(x[mine], y[mine], num_labels=CLASSES, batch_size=work.batch, shuffle=True) for mine in work.split
    ]
    test = FastDataLoader(test_x, test_y, num_labels=CLASSES, batch_size=EVALUATED_AT_ONCE)
    data = DummyDataContainer(loaders, [None] * work.num_workers, test, CLASSES)
    settings = DDict(
        client=DDict(
            batch_size=work.batch,
            local_epochs=1,
            loss="CrossEntropyLoss",
            optimizer=DDict(name="SGD", lr=work.rate),
            scheduler=DDict(name="StepLR", step_size=1, gamma=1),
        ),
        server=DDict(weighted=True),
        model=make_network(work.network),
    )
    federation = FedAVG(work.num_workers, DataSplitter(data), settings)
    federation.set_callbacks([Ticks(clock)])
    federation.run(clock.total, work.cohort / work.num_workers)
    clock.finish("fluke-fl", "torch")


if __name__ == "__main__":
    main()
