"""The two networks, one worker's epoch and the evaluation in plain PyTorch, for the programs that use PyTorch."""

import numpy as np
import torch
import torch.nn.functional as F
from common import EVALUATED_AT_ONCE, Work
from torch import Tensor, nn


def make_network(name: str) -> nn.Sequential:
    """784-200-100-10, or LeNet-5 with 32 and 64 channels and dropout; no BatchNorm, which not every peer averages."""
    if name == "mlp":
        hidden = [nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU()]
        return nn.Sequential(*hidden, nn.Linear(100, 10))
    convolutions = [nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)]
    hidden = [nn.Flatten(), nn.Linear(1600, 512), nn.ReLU(), nn.Dropout(), nn.Linear(512, 128), nn.ReLU(), nn.Dropout()]
    return nn.Sequential(*convolutions, *hidden, nn.Linear(128, 10))


def tensors(work: Work) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test samples, sharing the memory of the arrays."""
    arrays = (work.train_x, work.train_y, work.test_x, work.test_y)
    x, y, test_x, test_y = (torch.from_numpy(array) for array in arrays)
    return x, y.long(), test_x, test_y.long()


def train_epoch(network: nn.Module, x: Tensor, y: Tensor, batch: int, rate: float, order: np.ndarray) -> None:
    """SGD once through the samples ``order``, in batches."""
    optimizer = torch.optim.SGD(network.parameters(), rate)
    network.train()
    for indices in torch.from_numpy(order).split(batch):
        optimizer.zero_grad()
        F.cross_entropy(network(x[indices]), y[indices]).backward()
        optimizer.step()


@torch.no_grad()
def accuracy_of(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of samples whose class the network finds."""
    network.eval()
    parts = zip(x.split(EVALUATED_AT_ONCE), y.split(EVALUATED_AT_ONCE), strict=True)
    return sum(int((network(images).argmax(1) == labels).sum()) for images, labels in parts) / len(y)
