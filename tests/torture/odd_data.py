"""Data sets that break numerical assumptions, for ``plugins=[tests.torture.odd_data]``."""

import dataclasses
from pathlib import Path

import torch

from fl_platform.data import datasets, readers
from fl_platform.data.image_set import ImageSet


def black(folder: Path) -> readers.Pair:
    """Digits of which the lower half of the classes is all zeros: many workers see constant input and nothing else."""
    train, test = readers.read_digits()
    return ImageSet(train.images * (train.labels >= 5).view(-1, 1, 1, 1), train.labels), test


def twins(folder: Path) -> readers.Pair:
    """One picture under one label: all workers compute the same update, and all anchors coincide."""
    train, test = readers.read_digits()
    return ImageSet(train.images[:1].repeat(len(train), 1, 1, 1), torch.full_like(train.labels, 3)), test


for name, load in (("black_digits", black), ("twin_digits", twins)):
    datasets.register(dataclasses.replace(datasets.get("digits"), name=name, description=load.__doc__ or "", load=load))
