"""FedAvg with FedLab: its standalone pipeline, serial trainer and synchronous server."""

import logging
import random
from typing import Any

import numpy as np
import tolerant_torchvision  # noqa: F401 - before what imports torchvision
import torch
from common import EVALUATED_AT_ONCE, begin
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils.functional import evaluate
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_parts import make_network, tensors


class Federation:
    """The samples of workers, as FedLab's trainer asks for them."""

    def __init__(self, parts: list[TensorDataset]) -> None:
        self.parts = parts

    def get_dataloader(self, worker: int, batch_size: int) -> DataLoader:
        return DataLoader(self.parts[worker], batch_size, shuffle=True)


class Pipeline(StandalonePipeline):
    """FedLab's rounds with its evaluation after each."""

    def __init__(self, handler: Any, trainer: Any, test: DataLoader, clock: Any) -> None:
        super().__init__(handler, trainer)
        self.test, self.clock = test, clock

    def evaluate(self) -> None:
        _, accuracy = evaluate(self.handler.model, nn.CrossEntropyLoss(), self.test)
        self.clock.tick(accuracy)


def main() -> None:
    work, clock = begin()
    torch.manual_seed(work.seed)
    random.seed(work.seed)
    np.random.seed(work.seed)  # noqa: NPY002 - what it draws from
    logging.getLogger().setLevel(logging.WARNING)  # two lines per worker otherwise
    x, y, test_x, test_y = tensors(work)
    network = make_network(work.network)
    trainer = SGDSerialClientTrainer(network, work.num_workers)
    trainer.setup_dataset(Federation([TensorDataset(x[mine], y[mine]) for mine in torch.from_numpy(work.split)]))
    trainer.setup_optim(1, work.batch, work.rate)
    handler = SyncServerHandler(network, clock.total, work.cohort / work.num_workers)
    logging.getLogger().setLevel(logging.WARNING)  # its Logger sets another
    test = DataLoader(TensorDataset(test_x, test_y), EVALUATED_AT_ONCE)
    Pipeline(handler, trainer, test, clock).main()
    clock.finish("fedlab", "torch")


if __name__ == "__main__":
    main()
