"""Networks as a user would write them, outside the platform."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Plain(nn.Module):
    """BatchNorm, both kinds of Dropout, layers in no particular order."""

    def __init__(self, hidden: int = 6, classes: int = 10) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, hidden, 3, padding=1)
        self.norm = nn.BatchNorm2d(hidden, momentum=0.2, eps=1e-4)
        self.drop_channels = nn.Dropout2d(0.25)
        self.head = nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3))
        self.output = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.head(self.drop_channels(F.relu(self.norm(self.convolution(x))))))


class DrawsItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.output(x.flatten(1)), training=self.training)


class ReturnsTuple(DrawsItself):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return self.output(x.flatten(1)), x


class NoParameters(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros(len(x), 10)


class FixedNorm(DrawsItself):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1, affine=False)


class RunningInstanceNorm(DrawsItself):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm2d(1, track_running_stats=True)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(10, 10), nn.Linear(10, 10)
        self.first.weight = self.second.weight
        self.into = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(self.into(x.flatten(1))))


NOT_A_MODULE = len


class Convolutional(nn.Module):
    """Ends in a convolution: no linear layer, no representation."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Conv2d(1, 10, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(x).flatten(1)


class ConvolutionLast(Convolutional):
    """A linear layer that does not give the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.rows(x))


class ReadsWeight(nn.Module):
    """Uses its last layer without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.flatten(1), self.output.weight, self.output.bias)


class IsLinear(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))


class PositionsVote(nn.Module):
    """Classifies every row of an image and averages."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(x[:, 0]).mean(1)
