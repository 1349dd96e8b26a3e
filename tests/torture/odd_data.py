"""Data sets that break numerical assumptions, for ``plugins=[tests.torture.odd_data]``."""

from pathlib import Path

import torch

from fl_platform.data import readers
from fl_platform.data.samples import Samples
from fl_platform.data.sets.images import Digits


class BlackDigits(Digits, name="black_digits"):
    """Digits of which the lower half of the classes is all zeros: many workers see constant input and nothing else."""

    def load(self, folder: Path) -> readers.Pair:
        train, test = readers.read_digits()
        return Samples(train.features * (train.labels >= 5).view(-1, 1, 1, 1), train.labels), test


class TwinDigits(Digits, name="twin_digits"):
    """One picture under one label: all workers compute the same update, and all anchors coincide."""

    def load(self, folder: Path) -> readers.Pair:
        train, test = readers.read_digits()
        return Samples(train.features[:1].repeat(len(train), 1, 1, 1), torch.full_like(train.labels, 3)), test
